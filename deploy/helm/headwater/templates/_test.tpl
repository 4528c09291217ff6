{{- /* One command of the test. Takes (dict "root" $ "step" list "scheme" …). */}}
{{- define "headwater.testStep" -}}
{{- $full := include "headwater.fullname" .root }}
- name: {{ first .step }}
  image: {{ include "headwater.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [/usr/bin/headwater]
  args:
    {{- range .step }}
    - {{ . | quote }}
    {{- end }}
  env:
    - name: HEADWATER_WRITER
      value: {{ .scheme }}://{{ $full }}-writer-headless:{{ .root.Values.ports.writer }}
    - name: HEADWATER_REPLICA
      value: {{ .scheme }}://{{ $full }}-replica-headless:{{ .root.Values.ports.replica }}
    {{- if .root.Values.tls.enabled }}
    - name: HEADWATER_TLS_CA
      value: /etc/headwater/tls/ca.crt
    {{- if .root.Values.tls.clientCertificates }}
    - name: HEADWATER_TLS_CERT
      value: /etc/headwater/tls/tls.crt
    - name: HEADWATER_TLS_KEY
      value: /etc/headwater/tls/tls.key
    {{- end }}
    {{- end }}
    {{- if .root.Values.test.tokenSecret }}
    - name: HEADWATER_TOKEN_FILE
      value: /etc/headwater/token/{{ .root.Values.test.tokenKey }}
    {{- if not .root.Values.tls.enabled }}
    - name: HEADWATER_TOKEN_OVER_PLAIN
      value: "true"
    {{- end }}
    {{- end }}
  resources:
    requests: { cpu: 50m, memory: 32Mi }
    limits: { memory: 128Mi }
  securityContext:
    {{- include "headwater.containerSecurity" .root | nindent 4 }}
  {{- if or .root.Values.tls.enabled .root.Values.test.tokenSecret }}
  volumeMounts:
    {{- if .root.Values.tls.enabled }}
    - name: tls
      mountPath: /etc/headwater/tls
      readOnly: true
    {{- end }}
    {{- if .root.Values.test.tokenSecret }}
    - name: token
      mountPath: /etc/headwater/token
      readOnly: true
    {{- end }}
  {{- end }}
{{- end }}

{{- define "headwater.testVolumes" -}}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "headwater.tlsSecret" . }}
    defaultMode: 0440
    {{- if not .Values.tls.clientCertificates }}
    items:
      - { key: ca.crt, path: ca.crt }
    {{- end }}
{{- end }}
{{- with .Values.test.tokenSecret }}
- name: token
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
