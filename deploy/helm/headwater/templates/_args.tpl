{{- /* The arguments of a writer or of a replica; settings come last, and go
before what the chart says. */}}
{{- define "headwater.args" -}}
{{- $values := .root.Values }}
- --listen=0.0.0.0:{{ .port }}
- --admin-listen=0.0.0.0:{{ $values.ports.admin }}
{{- /* Probes and scrapers reach it inside of the cluster, and show nothing. */}}
- --insecure-admin
{{- if $values.tls.enabled }}
- --listen-tls-cert-file=/etc/headwater/tls/tls.crt
- --listen-tls-key-file=/etc/headwater/tls/tls.key
- --admin-tls
{{- if $values.tls.clientCertificates }}
- --listen-tls-client-ca-file=/etc/headwater/tls/ca.crt
{{- end }}
{{- end }}
{{- if $values.tls.insecure }}
- --insecure-listen
{{- end }}
{{- if $values.auth.existingSecret }}
- --auth-file=/etc/headwater/auth/{{ $values.auth.key }}
{{- end }}
- --log-format={{ $values.log.format }}
{{- with $values.otlp.endpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
- --drain-delay-seconds={{ $values.drain.delaySeconds }}
- --drain-seconds-max={{ $values.drain.callsSecondsMax }}
{{- if eq .part "writer" }}
{{- if $values.store.trust }}
- --trust-store
{{- end }}
{{- if $values.writer.forwarding.enabled }}
- --writer-advertise={{ ternary "https" "http" $values.tls.enabled }}://{{ ternary "[$(POD_IP)]" "$(POD_IP)" $values.writer.forwarding.ipv6 }}:{{ .port }}
{{- /* Addresses of pods have no names, so it is the certificate that says who is
another writer; without TLS it is the network. */}}
- --writer-forward-to=*
{{- if $values.tls.enabled }}
- --writers-tls-server-name={{ include "headwater.fullname" .root }}-writer-headless
{{- end }}
{{- include "headwater.lineArgs" (dict "root" .root "token" $values.writer.forwarding.token) }}
{{- end }}
{{- else }}
{{- with $values.replica.cache }}
{{- if ne .kind "none" }}
- --replica-cache-dir=/var/cache/headwater
{{- /* A tenth is left: files are there for a moment before older ones go, and a
pod over its limit is evicted. */}}
- --replica-cache-disk-bytes={{ div (mul .sizeGiB 1073741824 9) 10 }}
{{- end }}
{{- end }}
{{- include "headwater.lineArgs" (dict "root" .root "token" $values.replica.writerToken) }}
- --writer={{ include "headwater.fullname" .root }}-writer-headless:{{ $values.ports.writer }}
{{- end }}
{{- include "headwater.flags" .values.settings }}
{{- end }}

{{- /* How a replica or a writer connects to writers.
Takes (dict "root" $ "token" .Values.replica.writerToken). */}}
{{- define "headwater.lineArgs" -}}
{{- $tls := .root.Values.tls }}
{{- if $tls.enabled }}
- --writers-tls-ca=/etc/headwater/tls/ca.crt
{{- if $tls.clientCertificates }}
- --writers-tls-cert=/etc/headwater/tls/tls.crt
- --writers-tls-key=/etc/headwater/tls/tls.key
{{- end }}
{{- end }}
{{- if .token.existingSecret }}
- --writers-token-file=/etc/headwater/writer-token/{{ .token.key }}
{{- if not $tls.enabled }}
- --writers-token-over-plain
{{- end }}
{{- end }}
{{- end }}

{{- /* The secret with the token that a pod shows to writers, or nothing.
Takes (dict "root" $ "part" …). */}}
{{- define "headwater.writerTokenSecret" -}}
{{- if eq .part "replica" }}
{{- .root.Values.replica.writerToken.existingSecret }}
{{- else if and (eq .part "writer") .root.Values.writer.forwarding.enabled }}
{{- .root.Values.writer.forwarding.token.existingSecret }}
{{- end }}
{{- end }}
