"""Parts between replicas, over Arrow Flight; the clients' door (`replica.endpoint`) shares its foundations."""
