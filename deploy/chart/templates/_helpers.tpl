{{- /* Names. */}}
{{- define "esd.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "esd.fullname" -}}
{{- $name := include "esd.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "esd.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (ternary (include "esd.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* Labels of an object; `component` is a key of files/services.toml, and the name of Prometheus' job. */}}
{{- define "esd.selectorLabels" -}}
app.kubernetes.io/name: {{ include "esd.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .worker }}
esd/worker: {{ . }}
{{- end }}
{{- end }}

{{- define "esd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
{{ include "esd.selectorLabels" . }}
{{- end }}

{{- /* The description of one service. */}}
{{- define "esd.services" -}}
{{ .Files.Get "files/services.toml" | fromToml | toJson }}
{{- end }}

{{- define "esd.image" -}}
{{ with .root.Values.image.registry }}{{ . }}/{{ end }}{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "esd.dispatcherAddress" -}}
{{- $services := include "esd.services" . | fromJson -}}
{{ include "esd.fullname" . }}-dispatcher:{{ $services.dispatcher.ports.grpc }}
{{- end }}

{{- /* The addresses of all parameter servers, in the order of their shards. */}}
{{- define "esd.parameterServerAddresses" -}}
{{- $port := (include "esd.services" . | fromJson).ps_server.ports.grpc -}}
{{- $name := printf "%s-ps" (include "esd.fullname" .) -}}
{{- range $shard := until (int .Values.parameterServers.shards) -}}
{{ if $shard }},{{ end }}{{ $name }}-{{ $shard }}.{{ $name }}:{{ $port }}
{{- end -}}
{{- end }}

{{- /* A value as the text of a variable: whole numbers without an exponent. */}}
{{- define "esd.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- /*
The environment of a service: its address and pages, the settings of files/services.toml, those of the values over them,
TLS and token, and the `variables` of its workload.
*/}}
{{- define "esd.environment" -}}
{{- $prefix := .service.prefix -}}
{{- $host := .root.Values.listenHost -}}
{{- $variables := dict (printf "%s_LISTEN" $prefix) (printf "%s:%v" (contains ":" $host | ternary (printf "[%s]" $host) $host) .service.ports.grpc) -}}
{{- range $name, $port := omit .service.ports "grpc" -}}
{{- $_ := set $variables (printf "%s_%s_PORT" $prefix (upper $name)) $port -}}
{{- end -}}
{{- range $name, $value := mergeOverwrite (deepCopy .service.settings) .settings -}}
{{- $_ := set $variables (printf "%s_%s" $prefix (upper $name)) $value -}}
{{- end -}}
{{- if .root.Values.tls.enabled -}}
{{- $_ := set $variables (printf "%s_TLS_CLIENTS" $prefix) "*" -}}
{{- end -}}
{{- range $name, $value := mergeOverwrite $variables (include "esd.credentials" . | fromJson) .variables }}
- name: {{ $name }}
  value: {{ include "esd.text" $value | quote }}
{{- end }}
{{- end }}

{{- /* The variables of certificate and token; `service.prefix` begins them. */}}
{{- define "esd.credentials" -}}
{{- $variables := dict -}}
{{- if .root.Values.tls.enabled -}}
{{- $_ := set $variables (printf "%s_TLS_CA" .service.prefix) "/run/secrets/tls/ca.crt" -}}
{{- $_ := set $variables (printf "%s_TLS_CERTIFICATE" .service.prefix) "/run/secrets/tls/tls.crt" -}}
{{- $_ := set $variables (printf "%s_TLS_KEY" .service.prefix) "/run/secrets/tls/tls.key" -}}
{{- end -}}
{{- if .token -}}
{{- $_ := set $variables (printf "%s_TOKEN_FILE" .service.prefix) "/run/secrets/token/token" -}}
{{- end -}}
{{ $variables | toJson }}
{{- end }}

{{- /* Values that no schema can check. */}}
{{- define "esd.check" -}}
{{- $values := .Values -}}
{{- if and (not $values.tls.enabled) (or $values.tokens.parameterServers $values.tokens.dispatcher $values.tokens.worker $values.tokens.client) -}}
{{- fail "tokens are sent over TLS only: set tls.enabled, or no tokens" -}}
{{- end -}}
{{- if and $values.tls.enabled (not $values.tls.certManager.enabled) -}}
{{- range $name, $secret := $values.tls.secrets -}}
{{- if and (not $secret) (not (and (eq $name "client") (not $values.driver.enabled))) -}}
{{- fail (printf "tls.secrets.%s is empty: name a secret with tls.crt, tls.key and ca.crt, or set tls.certManager.enabled" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.tls.certManager.enabled (not $values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name is empty: name an issuer of cert-manager" -}}
{{- end -}}
{{- $names := list -}}
{{- range $values.workers.list -}}
{{- if has .name $names -}}
{{- fail (printf "two workers have the name %s" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- if and $values.driver.enabled $values.networkPolicy.enabled (not $values.networkPolicy.betweenWorkers) -}}
{{- $arguments := join " " $values.driver.arguments -}}
{{- if contains "--direct" $arguments -}}
{{- fail "--direct needs connections between workers: set networkPolicy.betweenWorkers, or leave --direct out" -}}
{{- end -}}
{{- if not (or (contains "--dense server" $arguments) (contains "--dense low-rank" $arguments) (contains "--dense every" $arguments) (contains "--config" $arguments)) -}}
{{- fail "the all-reduce needs connections between workers: set networkPolicy.betweenWorkers, or add --dense and server to driver.arguments" -}}
{{- end -}}
{{- end -}}
{{- end }}
