{{- /* What every container of ours has. Takes (dict "root" $ "part" …). */}}
{{- define "headwater.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end }}

{{- define "headwater.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* A map of flags without dashes, as arguments. A switch is given as true, a
list once for each of its values. */}}
{{- define "headwater.flags" -}}
{{- range $flag, $value := . }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- --{{ $flag }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%v" $flag . | quote }}
{{- end }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%d" $flag (int64 $value) | quote }}
{{- else }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* How the bucket is reached. */}}
{{- define "headwater.storeEnv" -}}
- name: HEADWATER_STORE
  value: {{ .Values.store.url | quote }}
{{- if .Values.store.encryption.existingSecret }}
- name: HEADWATER_STORE_KEY_FILE
  value: /etc/headwater/keys/{{ .Values.store.encryption.key }}
{{- end }}
{{- end }}

{{- define "headwater.storeEnvFrom" -}}
{{- with .Values.store.credentials.existingSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end }}

{{- /* The pod of a writer or of a replica.
Takes (dict "root" $ "part" … "values" .Values.writer "port" …). */}}
{{- define "headwater.pod" -}}
{{- $root := .root }}
{{- $part := .part }}
{{- $of := .values }}
metadata:
  labels:
    {{- include "headwater.labels" . | nindent 4 }}
    {{- with $of.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $of.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "headwater.serviceAccount" . }}
  automountServiceAccountToken: false
  # Variables of services (HEADWATER_WRITER_PORT) would look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "headwater.grace" $root }}
  securityContext:
    {{- include "headwater.podSecurity" $root | nindent 4 }}
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $of.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $of.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $of.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $of.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $root.Values.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: {{ $root.Values.topologySpread.whenUnsatisfiable }}
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels:
          {{- include "headwater.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $part }}
      image: {{ include "headwater.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [/usr/bin/headwater-{{ $part }}]
      args:
        {{- include "headwater.args" . | trim | nindent 8 }}
      env:
        {{- include "headwater.storeEnv" $root | nindent 8 }}
        - name: HEADWATER_LOG
          value: {{ $root.Values.log.level | quote }}
        {{- if and (eq $part "writer") $of.forwarding.enabled }}
        - name: POD_IP
          valueFrom: { fieldRef: { fieldPath: status.podIP } }
        {{- end }}
        {{- with $of.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- include "headwater.storeEnvFrom" $root | nindent 6 }}
      ports:
        - name: grpc
          containerPort: {{ .port }}
        - name: admin
          containerPort: {{ $root.Values.ports.admin }}
      {{- include "headwater.probes" . | nindent 6 }}
      resources:
        {{- toYaml $of.resources | nindent 8 }}
      securityContext:
        {{- include "headwater.containerSecurity" $root | nindent 8 }}
      {{- with include "headwater.mounts" . | trim }}
      volumeMounts:
        {{- . | nindent 8 }}
      {{- end }}
  {{- with include "headwater.volumes" . | trim }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "headwater.probes" -}}
{{- /* Alive is what the process says of itself; the store is not asked. The
kubelet does not look at the certificate. */ -}}
{{- $scheme := ternary "HTTPS" "HTTP" .root.Values.tls.enabled }}
startupProbe:
  httpGet: { path: /livez, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 1
  failureThreshold: {{ .root.Values.probes.startSecondsMax }}
livenessProbe:
  httpGet: { path: /livez, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- if eq .root.Values.probes.readiness "grpc" }}
  grpc: { port: {{ .port }} }
  {{- else }}
  httpGet: { path: /readyz, port: admin, scheme: {{ $scheme }} }
  {{- end }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{- define "headwater.mounts" -}}
{{- $values := .root.Values }}
{{- if $values.store.encryption.existingSecret }}
- name: keys
  mountPath: /etc/headwater/keys
  readOnly: true
{{- end }}
{{- if $values.tls.enabled }}
- name: tls
  mountPath: /etc/headwater/tls
  readOnly: true
{{- end }}
{{- if $values.auth.existingSecret }}
- name: auth
  mountPath: /etc/headwater/auth
  readOnly: true
{{- end }}
{{- if include "headwater.writerTokenSecret" . }}
- name: writer-token
  mountPath: /etc/headwater/writer-token
  readOnly: true
{{- end }}
{{- if and (eq .part "replica") (ne $values.replica.cache.kind "none") }}
- name: cache
  mountPath: /var/cache/headwater
{{- end }}
{{- end }}

{{- define "headwater.volumes" -}}
{{- $values := .root.Values }}
{{- with $values.store.encryption.existingSecret }}
- name: keys
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if $values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "headwater.tlsSecret" .root }}
    defaultMode: 0440
{{- end }}
{{- with $values.auth.existingSecret }}
- name: auth
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with include "headwater.writerTokenSecret" . }}
- name: writer-token
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if eq .part "replica" }}
{{- with $values.replica.cache }}
{{- if eq .kind "emptyDir" }}
- name: cache
  emptyDir:
    sizeLimit: {{ .sizeGiB }}Gi
{{- else if eq .kind "volume" }}
- name: cache
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .storageClassName }}
        storageClassName: {{ . }}
        {{- end }}
        resources:
          requests:
            storage: {{ .sizeGiB }}Gi
{{- end }}
{{- end }}
{{- end }}
{{- end }}
