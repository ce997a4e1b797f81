{{- define "skein.name" -}}
{{- .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* At most 40 characters, as others are added. A longer name is cut and ends with its hash, so that names which begin alike differ. */}}
{{- define "skein.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- $full = .Values.fullnameOverride | default $full -}}
{{- if gt (len $full) 40 }}{{ $full = printf "%s-%s" (trunc 31 $full | trimSuffix "-") (sha256sum $full | trunc 8) }}{{ end -}}
{{- $full | trimSuffix "-" }}
{{- end }}

{{/* What pods are found by; never changes for an installation. Takes (dict "root" $ "stage" "ingest"). */}}
{{- define "skein.selector" -}}
app.kubernetes.io/name: {{ include "skein.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .stage }}
{{- end }}

{{- define "skein.labels" -}}
{{ include "skein.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "skein.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* Fails with one line that says what to write. */}}
{{- define "skein.validate" -}}
{{- if not .Values.kafka.brokers }}
{{- fail "kafka.brokers is missing: write --set 'kafka.brokers={HOST:9092}'" }}
{{- end }}
{{- if not .Values.clickhouse.urls }}
{{- fail "clickhouse.urls is missing: write --set 'clickhouse.urls={http://HOST:8123}'" }}
{{- end }}
{{- $k := .Values.kafka }}
{{- if and (not $k.tls.enabled) (or $k.tls.serverName $k.tls.authorityKey $k.tls.certificateKey $k.tls.privateKeyKey) }}
{{- fail "kafka.tls has values and is not enabled: write --set kafka.tls.enabled=true" }}
{{- end }}
{{- $oauth := eq $k.sasl.mechanism "OAUTHBEARER" }}
{{- $iam := eq $k.sasl.mechanism "AWS_MSK_IAM" }}
{{- if and $oauth (not $k.sasl.oauth.tokenKey) (not $k.sasl.oauth.url) }}
{{- fail "kafka.sasl.oauth.url is missing: write --set kafka.sasl.oauth.url=https://…, the token endpoint, or kafka.sasl.oauth.tokenKey=KEY" }}
{{- end }}
{{- if and $iam (not $k.tls.enabled) }}
{{- fail "kafka.tls is not enabled, and AWS_MSK_IAM needs it: write --set kafka.tls.enabled=true" }}
{{- end }}
{{- $user := and $k.sasl.mechanism (not $iam) (not (and $oauth $k.sasl.oauth.tokenKey)) }}
{{- if and $user (not $k.sasl.user) }}
{{- fail "kafka.sasl.user is missing: write --set kafka.sasl.user=NAME" }}
{{- end }}
{{- if and (not $k.existingSecret) (or $user $k.sasl.oauth.tokenKey $k.tls.authorityKey $k.tls.certificateKey $k.tls.privateKeyKey) }}
{{- fail "kafka.existingSecret is missing: write --set kafka.existingSecret=NAME of the Secret with the files" }}
{{- end }}
{{- if and .Values.clickhouse.authorityKey (not .Values.clickhouse.existingSecret) }}
{{- fail "clickhouse.existingSecret is missing: write --set clickhouse.existingSecret=NAME of the Secret with the authority" }}
{{- end }}
{{- if and .Values.tls.clientAuthorityKey (not .Values.tls.existingSecret) }}
{{- fail "tls.existingSecret is missing: write --set tls.existingSecret=NAME of the Secret with the certificate" }}
{{- end }}
{{- with .Values.jwt }}
{{- if and .jwks (not (and .issuer .audience)) }}
{{- fail "jwt.issuer and jwt.audience are missing: write --set jwt.issuer=URL,jwt.audience=NAME" }}
{{- end }}
{{- if and (not .jwks) (or .issuer .audience) }}
{{- fail "jwt.jwks is missing: write --set jwt.jwks=https://ISSUER/…" }}
{{- end }}
{{- end }}
{{- range $stage := list "ingest" "query" "compactor" "indexer" }}
{{- $a := (index $.Values $stage).autoscaling }}
{{- if and $a.enabled (lt (int $a.maxReplicas) (int $a.minReplicas)) }}
{{- fail (printf "%s.autoscaling.maxReplicas is %v, below minReplicas %v: write at least that" $stage $a.maxReplicas $a.minReplicas) }}
{{- end }}
{{- end }}
{{- $name := printf "%s-compactor" (include "skein.fullname" .) }}
{{- range dig "spec" "volumeClaimTemplates" list (lookup "apps/v1" "StatefulSet" .Release.Namespace $name) }}
{{- $size := .spec.resources.requests.storage }}
{{- $class := .spec.storageClassName | default "" }}
{{- $new := $.Values.compactor.storage }}
{{- if or (ne $class $new.className) (ne (include "skein.bytes" $size) (include "skein.bytes" $new.size)) }}
{{- fail (printf "compactor.storage cannot change in an upgrade: write --set compactor.storage.size=%s,compactor.storage.className=%s, or first kubectl -n %s delete statefulset %s --cascade=orphan, which keeps pods and volumes" $size $class $.Release.Namespace $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A size such as 10Gi in bytes: the cluster may write the same size in another unit. */}}
{{- define "skein.bytes" -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- $bytes := trimSuffix $unit . | float64 -}}
{{- range until (get (dict "" 0 "k" 1 "K" 1 "M" 2 "G" 3 "T" 4 "P" 5 "E" 6) (trunc 1 $unit)) }}
{{- $bytes = mulf $bytes (hasSuffix "i" $unit | ternary 1024 1000) }}
{{- end -}}
{{- $bytes }}
{{- end }}

{{/* How Kafka is reached, as settings. */}}
{{- define "skein.kafka" -}}
{{- $k := .Values.kafka -}}
brokers: {{ join "," $k.brokers | quote }}
{{- with $k.topicPrefix }}
topic_prefix: {{ . | quote }}
{{- end }}
{{- with $k.rack }}
kafka_rack: {{ . | quote }}
{{- end }}
{{- if $k.tls.enabled }}
kafka_tls: "true"
{{- with $k.tls.serverName }}
kafka_server_name: {{ . | quote }}
{{- end }}
{{- with $k.tls.authorityKey }}
kafka_ca_file: /etc/skein/kafka/{{ . }}
{{- end }}
{{- with $k.tls.certificateKey }}
kafka_cert_file: /etc/skein/kafka/{{ . }}
{{- end }}
{{- with $k.tls.privateKeyKey }}
kafka_key_file: /etc/skein/kafka/{{ . }}
{{- end }}
{{- end }}
{{- if $k.sasl.mechanism }}
kafka_sasl: {{ $k.sasl.mechanism }}
{{- if and $k.sasl.user (ne $k.sasl.mechanism "AWS_MSK_IAM") }}
kafka_user: {{ $k.sasl.user | quote }}
kafka_password_file: /etc/skein/kafka/{{ $k.sasl.passwordKey }}
{{- end }}
{{- if eq $k.sasl.mechanism "OAUTHBEARER" }}
{{- with $k.sasl.oauth.tokenKey }}
kafka_oauth_token_file: /etc/skein/kafka/{{ . }}
{{- end }}
{{- with $k.sasl.oauth.url }}
kafka_oauth_url: {{ . | quote }}
{{- end }}
{{- with $k.sasl.oauth.scope }}
kafka_oauth_scope: {{ . | quote }}
{{- end }}
{{- with $k.sasl.oauth.authorityKey }}
kafka_oauth_ca_file: /etc/skein/kafka/{{ . }}
{{- end }}
{{- with $k.sasl.oauth.extensions }}
{{- $pairs := list }}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end }}
kafka_oauth_extensions: {{ join "," $pairs | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The settings of a stage, as its YAML file. */}}
{{- define "skein.settings" -}}
{{- $v := .root.Values -}}
{{ include "skein.kafka" .root }}
admin_listen: ":8421"
{{- if $v.pprof }}
pprof: true
{{- end }}
{{- if $v.tls.existingSecret }}
admin_tls_cert_file: /etc/skein/tls/{{ $v.tls.certificateKey }}
admin_tls_key_file: /etc/skein/tls/{{ $v.tls.privateKeyKey }}
{{- end }}
{{- if $v.adminToken.existingSecret }}
admin_token_file: /etc/skein/admin/{{ $v.adminToken.existingSecretKey }}
{{- end }}
log_level: {{ $v.log.level }}
log_format: {{ $v.log.format }}
{{- if has .stage (list "ingest" "query") }}
listen: ":8420"
{{- $other := ternary "query" "ingest" (eq .stage "ingest") }}
{{- with (index $v $other).url }}
{{ $other }}_url: {{ . | quote }}
{{- end }}
{{- if eq .stage "ingest" }}
query_internal_url: {{ include "skein.queryInternalURL" .root | quote }}
{{- if and $v.tls.existingSecret $v.tls.authorityKey }}
query_ca_file: /etc/skein/tls/{{ $v.tls.authorityKey }}
{{- end }}
{{- end }}
stream_heartbeat: {{ $v.streamHeartbeat }}
{{- if or $v.apiKeys.existingSecret (not $v.jwt.jwks) }}
api_keys: /etc/skein/keys/{{ $v.apiKeys.existingSecretKey }}
{{- end }}
{{- with $v.corsOrigins }}
cors_origin: {{ join "," . | quote }}
{{- end }}
{{- if $v.tls.existingSecret }}
tls_cert_file: /etc/skein/tls/{{ $v.tls.certificateKey }}
tls_key_file: /etc/skein/tls/{{ $v.tls.privateKeyKey }}
{{- with $v.tls.clientAuthorityKey }}
tls_client_ca_file: /etc/skein/tls/{{ . }}
{{- end }}
{{- end }}
{{- if $v.jwt.jwks }}
jwt_jwks: {{ $v.jwt.jwks | quote }}
jwt_issuer: {{ $v.jwt.issuer | quote }}
jwt_audience: {{ $v.jwt.audience | quote }}
jwt_tenant_claim: {{ $v.jwt.tenantClaim | quote }}
jwt_scope_claim: {{ $v.jwt.scopeClaim | quote }}
jwt_skew: {{ $v.jwt.skew }}
{{- end }}
{{- $stage := index $v .stage }}
replicas: {{ $stage.autoscaling.enabled | ternary $stage.autoscaling.maxReplicas $stage.replicas | int }}
{{- if $v.auditLog }}
audit_log: "-"
{{- end }}
{{- if $v.accessLog }}
access_log: true
{{- end }}
{{- end }}
{{- if has .stage (list "ingest" "query" "compactor") }}
{{- if $v.quotas }}
quotas: /etc/skein/quotas/quotas.yaml
{{- end }}
tenant_metrics: {{ $v.tenantMetrics | int }}
{{- if include "skein.signing" . }}
require_ingest: /etc/skein/signing/{{ $v.requireIngest.existingSecretKey }}
{{- end }}
{{- end }}
{{- if has .stage (list "indexer" "query") }}
{{ include "skein.clickhouse" .root }}
{{- end }}
{{- end }}

{{/* The Secret with the signing keys, if a stage has them. Takes root and stage. */}}
{{- define "skein.signing" -}}
{{- $v := .root.Values.requireIngest }}
{{- if or (eq .stage "ingest") (and $v.enforce (has .stage (list "query" "compactor"))) }}
{{- $v.existingSecret }}
{{- end }}
{{- end }}

{{/* Where ingest reaches query. */}}
{{- define "skein.queryInternalURL" -}}
{{- $scheme := empty .Values.tls.existingSecret | ternary "http" "https" -}}
{{- .Values.query.internalUrl | default (printf "%s://%s-query.%s:%v" $scheme (include "skein.fullname" .) .Release.Namespace .Values.query.service.port) }}
{{- end }}

{{- define "skein.clickhouse" -}}
{{- $c := .Values.clickhouse -}}
clickhouse: {{ join "," $c.urls | quote }}
clickhouse_database: {{ $c.database | quote }}
clickhouse_user: {{ $c.user | quote }}
{{- if $c.existingSecret }}
clickhouse_password_file: /etc/skein/clickhouse/{{ $c.existingSecretKey }}
{{- end }}
{{- with $c.authorityKey }}
clickhouse_ca_file: /etc/skein/clickhouse/{{ . }}
{{- end }}
{{- if $c.cluster }}
clickhouse_cluster: {{ $c.cluster | quote }}
{{- end }}
{{- if $c.replicated }}
clickhouse_replicated: true
{{- end }}
{{- end }}

{{- define "skein.configmap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "skein.fullname" .root }}-{{ .stage }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "skein.labels" . | nindent 4 }}
data:
  skein.yaml: |
    {{- .settings | nindent 4 }}
  {{- with .agents }}
  agents.yaml: |
    {{- . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "skein.podMetadata" -}}
labels:
  {{- include "skein.labels" . | nindent 2 }}
  skein/admin: "true"
annotations:
  checksum/config: {{ printf "%s%s" .settings (.agents | default "") | sha256sum }}
  prometheus.io/scrape: "true"
  prometheus.io/port: "8421"
  prometheus.io/path: /metrics
  {{- if .root.Values.tls.existingSecret }}
  prometheus.io/scheme: https
  {{- end }}
  {{- with (index .root.Values .stage).podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "skein.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "skein.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* A time such as 1.5s, 500ms or 2m in whole seconds, rounded up. */}}
{{- define "skein.seconds" -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- mulf (trimSuffix $unit . | float64) (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit) | ceil | int }}
{{- end }}

{{/*
How long a pod may take to stop. Ingest drains, ends what is left in 5 s, and waits for Kafka 1 s longer than ackTimeout; the rest of
the 15 s is a margin.
*/}}
{{- define "skein.gracePeriod" -}}
{{- $stage := index .root.Values .stage -}}
{{- if $stage.terminationGracePeriodSeconds }}
{{- $stage.terminationGracePeriodSeconds }}
{{- else if eq .stage "ingest" }}
{{- add (include "skein.seconds" $stage.drainTimeout) (include "skein.seconds" $stage.ackTimeout) 15 }}
{{- else }}
{{- 45 }}
{{- end }}
{{- end }}

{{/* The pod of a stage. Takes root, stage and, for the compactor, data (a volume's name). */}}
{{- define "skein.podSpec" -}}
{{- $stage := index .root.Values .stage }}
{{- $secret := .root.Values.clickhouse.existingSecret }}
{{- $clickhouse := and $secret (has .stage (list "indexer" "query")) }}
{{- $agents := and (eq .stage "ingest") .root.Values.ingest.agentsExistingSecret }}
{{- $quotas := and .root.Values.quotas (has .stage (list "ingest" "query" "compactor")) }}
{{- $signing := include "skein.signing" . }}
{{- $probe := dict "port" "admin" }}
{{- if .root.Values.tls.existingSecret }}
{{- $probe = dict "port" "admin" "scheme" "HTTPS" }}
{{- end }}
{{- $keys := and .root.Values.apiKeys.existingSecret (has .stage (list "ingest" "query")) -}}
serviceAccountName: {{ include "skein.fullname" .root }}
automountServiceAccountToken: false
# A Service named like a setting would be taken for one.
enableServiceLinks: false
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ include "skein.gracePeriod" . }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "skein.podSecurity" . | nindent 2 }}
containers:
  - name: {{ .stage }}
    image: {{ include "skein.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: [/usr/local/bin/{{ .stage }}]
    args: [--config=/etc/skein/config/skein.yaml]
    env:
      {{- if .data }}
      # The pod's name is its own in the group, and stays over restarts.
      - name: SKEIN_INSTANCE_ID
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
      {{- end }}
      # Has Go collect garbage before the pod is killed for it.
      - name: GOMEMLIMIT
        valueFrom:
          resourceFieldRef:
            resource: limits.memory
      {{- with .root.Values.otel.endpoint }}
      - name: OTEL_EXPORTER_OTLP_ENDPOINT
        value: {{ . | quote }}
      {{- end }}
      {{- with concat .root.Values.extraEnv $stage.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      {{- if has .stage (list "ingest" "query") }}
      - name: http
        containerPort: 8420
      {{- end }}
      - name: admin
        containerPort: 8421
    # Whether it starts at all; a compactor may have a local store to build first.
    startupProbe:
      httpGet: {{ merge (dict "path" "/healthz") $probe | toJson }}
      periodSeconds: 2
      failureThreshold: 60
    livenessProbe:
      httpGet: {{ merge (dict "path" "/healthz") $probe | toJson }}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {{ merge (dict "path" "/readyz") $probe | toJson }}
      periodSeconds: 5
      timeoutSeconds: 2
    resources:
      {{- toYaml $stage.resources | nindent 6 }}
    securityContext:
      {{- include "skein.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - name: config
        mountPath: /etc/skein/config
        readOnly: true
      {{- if .root.Values.kafka.existingSecret }}
      - name: kafka
        mountPath: /etc/skein/kafka
        readOnly: true
      {{- end }}
      {{- if $clickhouse }}
      - name: clickhouse
        mountPath: /etc/skein/clickhouse
        readOnly: true
      {{- end }}
      {{- if $keys }}
      - name: keys
        mountPath: /etc/skein/keys
        readOnly: true
      {{- end }}
      {{- if .root.Values.tls.existingSecret }}
      - name: tls
        mountPath: /etc/skein/tls
        readOnly: true
      {{- end }}
      {{- if .root.Values.adminToken.existingSecret }}
      - name: admin
        mountPath: /etc/skein/admin
        readOnly: true
      {{- end }}
      {{- if $quotas }}
      - name: quotas
        mountPath: /etc/skein/quotas
        readOnly: true
      {{- end }}
      {{- if $signing }}
      - name: signing
        mountPath: /etc/skein/signing
        readOnly: true
      {{- end }}
      {{- if $agents }}
      - name: agents
        mountPath: /etc/skein/agents
        readOnly: true
      {{- end }}
      {{- if .data }}
      - name: {{ .data }}
        mountPath: /var/lib/skein
      {{- end }}
volumes:
  - name: config
    configMap:
      name: {{ include "skein.fullname" .root }}-{{ .stage }}
  {{- with .root.Values.kafka.existingSecret }}
  - name: kafka
    secret:
      secretName: {{ . }}
  {{- end }}
  {{- if $clickhouse }}
  - name: clickhouse
    secret:
      secretName: {{ $secret }}
  {{- end }}
  {{- if $keys }}
  - name: keys
    secret:
      secretName: {{ .root.Values.apiKeys.existingSecret }}
  {{- end }}
  {{- with .root.Values.tls.existingSecret }}
  - name: tls
    secret:
      secretName: {{ . }}
  {{- end }}
  {{- with .root.Values.adminToken.existingSecret }}
  - name: admin
    secret:
      secretName: {{ . }}
  {{- end }}
  {{- if $quotas }}
  # No checksum restarts pods for it: the stages read the file again.
  - name: quotas
    configMap:
      name: {{ include "skein.fullname" .root }}-quotas
  {{- end }}
  {{- if $signing }}
  - name: signing
    secret:
      secretName: {{ $signing }}
  {{- end }}
  {{- if $agents }}
  - name: agents
    secret:
      secretName: {{ $agents }}
  {{- end }}
{{- with $stage.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $stage.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $stage.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if gt (int $stage.replicas) 1 }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "skein.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* A Deployment with its settings. Takes root, stage, settings. */}}
{{- define "skein.deployment" -}}
{{- $stage := index .root.Values .stage }}
{{- $scaled := and $stage.autoscaling $stage.autoscaling.enabled }}
{{ include "skein.configmap" . }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "skein.fullname" .root }}-{{ .stage }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "skein.labels" . | nindent 4 }}
spec:
  {{- if not $scaled }}
  replicas: {{ $stage.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "skein.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "skein.podMetadata" . | nindent 6 }}
    spec:
      {{- include "skein.podSpec" . | nindent 6 }}
{{- end }}

{{- define "skein.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "skein.fullname" .root }}-{{ .stage }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "skein.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "skein.selector" . | nindent 6 }}
{{- end }}

{{/* What an HTTP stage has beside its Deployment: Service, disruption budget, scaling on CPU. */}}
{{- define "skein.http" -}}
{{- $stage := index .root.Values .stage }}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "skein.fullname" .root }}-{{ .stage }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "skein.labels" . | nindent 4 }}
  {{- with $stage.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $stage.service.type }}
  selector:
    {{- include "skein.selector" . | nindent 4 }}
  ports:
    - name: http
      port: {{ $stage.service.port }}
      targetPort: http
---
{{ include "skein.disruptionBudget" . }}
{{- with $stage.autoscaling }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "skein.fullname" $.root }}-{{ $.stage }}
  namespace: {{ $.root.Release.Namespace }}
  labels:
    {{- include "skein.labels" $ | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "skein.fullname" $.root }}-{{ $.stage }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .targetCPUPercent }}
{{- end }}
{{- end }}
{{- end }}

{{/* Has Helm make an object before the stages of a release start, the least weight first, and remove it when all of them are done. */}}
{{- define "skein.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/*
A Job that ends before the stages of a release start, on installs and on upgrades. Takes root, stage, and
command, env (a dict), and secret, which is kafka or clickhouse: whose secret it needs.
*/}}
{{- define "skein.job" -}}
{{- $secret := (index .root.Values .secret).existingSecret -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "skein.fullname" .root }}-{{ .stage }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "skein.labels" . | nindent 4 }}
  annotations:
    {{- include "skein.hook" 0 | nindent 4 }}
spec:
  backoffLimit: 6
  template:
    metadata:
      labels:
        {{- include "skein.labels" . | nindent 8 }}
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with .root.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "skein.podSecurity" . | nindent 8 }}
      containers:
        - name: {{ .stage }}
          image: {{ include "skein.image" .root | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: [{{ join ", " .command }}]
          env:
            {{- range $name, $value := .env }}
            - name: {{ $name }}
              value: {{ $value | quote }}
            {{- end }}
            {{- with .root.Values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          resources:
            requests: {cpu: 50m, memory: 32Mi}
            limits: {memory: 128Mi}
          securityContext:
            {{- include "skein.containerSecurity" . | nindent 12 }}
          {{- if $secret }}
          volumeMounts:
            - name: {{ .secret }}
              mountPath: /etc/skein/{{ .secret }}
              readOnly: true
          {{- end }}
      {{- if $secret }}
      volumes:
        - name: {{ .secret }}
          secret:
            secretName: {{ $secret }}
      {{- end }}
{{- end }}

{{/*
Scales a stage on its own lag in seconds: the mean over its pods. Takes root, stage and kind, the workload's.
*/}}
{{- define "skein.lagScaler" -}}
{{- $a := (index .root.Values .stage).autoscaling -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "skein.fullname" .root }}-{{ .stage }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "skein.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: {{ .kind }}
    name: {{ include "skein.fullname" .root }}-{{ .stage }}
  minReplicas: {{ $a.minReplicas }}
  maxReplicas: {{ $a.maxReplicas }}
  metrics:
    - type: Pods
      pods:
        metric:
          name: {{ $a.metric }}
        target:
          type: AverageValue
          averageValue: {{ $a.targetLagSeconds | quote }}
{{- end }}

{{/* The TCP ports that a stage reaches, with spaces between. */}}
{{- define "skein.egressPorts" -}}
{{- $v := .root.Values -}}
{{- $ports := list "53" -}}
{{- if ne .stage "migrate" }}{{ range $v.kafka.brokers }}{{ $ports = append $ports (splitList ":" . | last) }}{{ end }}{{ end -}}
{{- $urls := list -}}
{{- if ne .stage "migrate" }}{{ with $v.kafka.sasl.oauth.url }}{{ $urls = append $urls . }}{{ end }}{{ end -}}
{{- if and (eq $v.kafka.sasl.mechanism "AWS_MSK_IAM") (ne .stage "migrate") }}{{ $ports = append $ports "443" "80" }}{{ end -}}{{/* STS; EKS Pod Identity */}}
{{- if has .stage (list "indexer" "query" "migrate") }}{{ $urls = concat $urls $v.clickhouse.urls }}{{ end -}}
{{- if and $v.jwt.jwks (has .stage (list "ingest" "query")) }}{{ $urls = append $urls $v.jwt.jwks }}{{ end -}}
{{- if and $v.otel.endpoint (has .stage (list "ingest" "compactor" "indexer" "query")) }}{{ $urls = append $urls $v.otel.endpoint }}{{ end -}}
{{- if eq .stage "ingest" -}}
{{- $urls = append $urls (include "skein.queryInternalURL" .root) }}
{{- $ports = append $ports "8421" }}{{/* skein status runs in its pods */}}
{{- if not $v.query.internalUrl }}{{ $ports = append $ports "8420" }}{{ end }}{{/* policies see the pod's port, or the Service's */}}
{{- range $v.ingest.agents }}{{ $urls = append $urls .url }}{{ end }}
{{- end -}}
{{- range $urls }}
{{- $url := urlParse . -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) -}}
{{- $ports = append $ports ($port | default (get (dict "http" "80" "https" "443" "clickhouse" "9000") $url.scheme)) -}}
{{- end -}}
{{- range $v.networkPolicy.egressPorts }}{{ $ports = append $ports (toString .) }}{{ end -}}
{{- join " " $ports -}}
{{- end }}
