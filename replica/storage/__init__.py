"""What a part is made of, and the disk it lies on."""
