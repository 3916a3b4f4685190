# Writes what the variables of the official image say into a configuration, and becomes the server.
set -eu
data=${ZOO_DATA_DIR:-/data}
echo "${ZOO_MY_ID:-1}" >"$data/myid"
{
    echo "dataDir=$data"
    echo "tickTime=${ZOO_TICK_TIME:-2000}"
    echo "initLimit=${ZOO_INIT_LIMIT:-5}"
    echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
    echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
    echo "standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}"
    echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
    echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
    for line in ${ZOO_CFG_EXTRA:-} ${ZOO_SERVERS:-server.1=localhost:2888:3888;2181}; do
        echo "$line"
    done
} >/tmp/zoo.cfg
jars=/usr/share/java
exec java -Xmx256m -cp "$jars/zookeeper.jar:$jars/slf4j-simple.jar" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
