{{- /* Labels and annotations of a pod. `pod` has the values for this service. */}}
{{- define "esd.podMetadata" -}}
{{- $pod := mergeOverwrite (deepCopy .root.Values.pod) (deepCopy .pod) -}}
labels:
  {{- include "esd.selectorLabels" .ids | nindent 2 }}
  {{- with $pod.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $pod.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The secret of a certificate: `named` for this pod, the one that cert-manager makes, or the service's. */}}
{{- define "esd.tlsSecret" -}}
{{- $tls := .root.Values.tls -}}
{{- if $tls.enabled -}}
{{- if .named }}{{ .named }}{{ else if $tls.certManager.enabled }}{{ .own }}{{ else }}{{ index $tls.secrets .key }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* The folder of models of one's own. */}}
{{- define "esd.code" -}}
{{- $mounts := list -}}
{{- $volumes := list -}}
{{- with .Values.code.configMap -}}
{{- $mounts = list (dict "name" "code" "mountPath" "/code" "readOnly" true) -}}
{{- $volumes = list (dict "name" "code" "configMap" (dict "name" .)) -}}
{{- end -}}
{{ dict "mounts" $mounts "volumes" $volumes | toJson }}
{{- end }}

{{- define "esd.podName" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{- define "esd.podAddress" -}}
- name: ESD_WORKER_ADVERTISE_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}
