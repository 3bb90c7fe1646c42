{{- /*
The spec of a pod.

  root         the chart
  name         of the container
  program      its description in files/services.toml
  image        without registry and tag
  command      list
  environment  YAML list, may be empty
  pod          values of `pod` for this service
  tlsSecret    secret of the certificate; empty without TLS
  token        secret of the token; empty for none
  volumes      list
  mounts       list
  resources    that the workload needs, such as a GPU
  startup      seconds in which a service must be ready
  workingDir   of the command
*/}}
{{- define "esd.podSpec" -}}
{{- $root := .root -}}
{{- $services := include "esd.services" $root | fromJson -}}
{{- $pod := mergeOverwrite (deepCopy $root.Values.pod) (deepCopy .pod) -}}
serviceAccountName: {{ include "esd.serviceAccountName" $root }}
automountServiceAccountToken: false
# The variables of a service `esd-ps` would be ESD_PS_PORT and the like, which no setting is called.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int $pod.terminationGracePeriodSeconds | default $services.stop_seconds }}
{{- if $pod.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $services.user }}
  runAsGroup: {{ $services.user }}
  fsGroup: {{ $services.user }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $name := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" "priorityClassName" "runtimeClassName" }}
{{- with index $pod $name }}
{{ dict $name . | toYaml }}
{{- end }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "esd.image" (dict "root" $root "image" .image) | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: {{ toJson .command }}
    {{- with .workingDir }}
    workingDir: {{ . }}
    {{- end }}
    {{- if or (trim .environment) $pod.extraEnv }}
    env:
      {{- with trim .environment }}
      {{- nindent 6 . }}
      {{- end }}
      {{- with $pod.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- if .program.ports }}
    ports:
      {{- range $name, $port := .program.ports }}
      - name: {{ $name }}
        containerPort: {{ $port }}
        protocol: TCP
      {{- end }}
    {{- include "esd.probes" . | nindent 4 }}
    {{- end }}
    resources:
      {{- include "esd.resources" (dict "memory" .program.memory "own" .resources "values" $pod.resources) | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- if .tlsSecret }}
      - name: tls
        mountPath: /run/secrets/tls
        readOnly: true
      {{- end }}
      {{- if .token }}
      - name: token
        mountPath: /run/secrets/token
        readOnly: true
      {{- end }}
      {{- with concat .mounts $pod.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: tmp
    emptyDir:
      medium: Memory
      sizeLimit: {{ ternary "1Gi" "64Mi" (eq .image (.program.cuda_image | default "none")) }}
  {{- with .tlsSecret }}
  - name: tls
    secret:
      secretName: {{ . }}
      defaultMode: 0440
      items:
        {{- range list "ca.crt" "tls.crt" "tls.key" }}
        - key: {{ . }}
          path: {{ . }}
        {{- end }}
  {{- end }}
  {{- with .token }}
  - name: token
    secret:
      secretName: {{ . }}
      defaultMode: 0440
      items:
        - key: token
          path: token
  {{- end }}
  {{- with concat .volumes $pod.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /*
Startup and readiness ask for the health of the service: the kubelet itself where it can, a command where the service asks
for a certificate and where Kubernetes has no such probe yet. Liveness asks whether the process answers at all, on the
metrics page, which has no TLS: a service that waits for its store is alive.
*/}}
{{- define "esd.probes" -}}
{{- $health := (include "esd.services" .root | fromJson).health -}}
startupProbe:
  {{- include "esd.health" . | nindent 2 }}
  periodSeconds: {{ .program.health_seconds }}
  timeoutSeconds: {{ $health.timeout_seconds }}
  failureThreshold: {{ div (int .startup) .program.health_seconds }}
readinessProbe:
  {{- include "esd.health" . | nindent 2 }}
  periodSeconds: {{ .program.health_seconds }}
  timeoutSeconds: {{ $health.timeout_seconds }}
  failureThreshold: 3
livenessProbe:
  httpGet:
    path: /metrics
    port: metrics
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: {{ $health.retries }}
{{- end }}

{{- define "esd.health" -}}
{{- if or .root.Values.tls.enabled (semverCompare "<1.27-0" .root.Capabilities.KubeVersion.Version) -}}
exec:
  command: {{ list "python3" "-m" "esd.services.runtime.probe" (printf "127.0.0.1:%v" .program.ports.grpc) | toJson }}
{{- else -}}
grpc:
  port: {{ .program.ports.grpc }}
{{- end -}}
{{- end }}

{{- /* Memory is requested as described, unless the values name it. */}}
{{- define "esd.resources" -}}
{{- $resources := mergeOverwrite (deepCopy .own) (deepCopy .values) -}}
{{- if not (or (dig "requests" "memory" "" $resources) (dig "limits" "memory" "" $resources)) -}}
{{- $memory := .memory | replace "g" "Gi" | replace "m" "Mi" -}}
{{- $_ := set $resources "requests" (mergeOverwrite (dict "memory" $memory) ($resources.requests | default dict)) -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}
