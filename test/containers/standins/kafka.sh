#!/bin/sh
# Starts as the official image does: Kafka's own wrapper makes the settings of KAFKA_… and formats the folder, unless it is formatted.
set -eu
defaults=/etc/kafka/docker
touch $defaults/server.properties $defaults/log4j2.yaml $defaults/tools-log4j2.yaml
cat >$defaults/log.properties <<'LOG'
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
LOG
kafka() { exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=$defaults/log.properties -cp '/opt/kafka/libs/*' "$@"; }
said=$(kafka kafka.docker.KafkaDockerWrapper setup --default-configs-dir $defaults --mounted-configs-dir /mnt/shared/config \
  --final-configs-dir /opt/kafka/config 2>&1) || case $said in *"already formatted"*) ;; *) echo "$said"; exit 1 ;; esac
kafka ${KAFKA_HEAP_OPTS:--Xms256m -Xmx512m} kafka.Kafka /opt/kafka/config/server.properties
