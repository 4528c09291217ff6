{{- define "headwater.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "headwater.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "headwater.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "headwater.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* What services, disruption budgets and policies select by. A Deployment
keeps its selector for life, so nothing that changes is in here.
Takes (dict "root" $ "part" "writer"). */}}
{{- define "headwater.selector" -}}
app.kubernetes.io/name: {{ include "headwater.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "headwater.labels" -}}
{{ include "headwater.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headwater.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{- define "headwater.serviceAccount" -}}
{{- if .root.Values.serviceAccount.create -}}
{{ include "headwater.fullname" .root }}-{{ .part }}
{{- else -}}
{{ default "default" .root.Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- define "headwater.tlsSecret" -}}
{{- default (printf "%s-tls" (include "headwater.fullname" .)) .Values.tls.existingSecret }}
{{- end }}

{{- /* From the signal to the kill: not ready, calls, what was taken (ten seconds
in the program), and five in reserve. */}}
{{- define "headwater.grace" -}}
{{- add .Values.drain.delaySeconds .Values.drain.callsSecondsMax 15 }}
{{- end }}
