# Debian's ZooKeeper, with the variables and the volume of the official image zookeeper:3.8, for machines that cannot
# pull that one:
#   docker build -f compose/zookeeper.Dockerfile -t zookeeper:3.8 --build-arg BASE=... compose
#
# BASE    a Debian image with the packages zookeeper and a Java runtime
ARG BASE
FROM ${BASE}
COPY zookeeper-entrypoint.sh /zookeeper-entrypoint.sh
RUN useradd --uid 10002 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin zk \
 && install -d -o zk -g zk /data
USER zk
VOLUME /data
ENTRYPOINT ["sh", "/zookeeper-entrypoint.sh"]
