{{- define "outrider.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Labels of every object. */ -}}
{{- define "outrider.labels" -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Labels that select one component's pods: never change between versions. Call with (list $ "component"). */ -}}
{{- define "outrider.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- /* Version of the cluster without a distribution's suffix: v1.37.2-eks-1 and v1.37.2+k3s1 give v1.37.2. */ -}}
{{- define "outrider.kubeSchedulerTag" -}}
{{- .Values.scheduler.kubeScheduler.image.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) -}}
{{- end -}}

{{- define "outrider.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "outrider.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Environment of every component. Call with the root. */ -}}
{{- define "outrider.env" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
{{- with .Values.telemetry.otlpEndpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- end -}}

{{- /* Probes of every component: port 8080, so that a busy start is not taken for a dead process. */ -}}
{{- define "outrider.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 3
{{- end -}}

{{- /* Placement of the deployments. Off a dead node within half a minute instead of five. Call with (list $ "component" values). */ -}}
{{- define "outrider.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index . 2 -}}
priorityClassName: {{ $values.priorityClassName }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
{{- with $values.tolerations }}
{{ toYaml . | indent 2 }}
{{- end }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "outrider.selector" (list $root $component) | nindent 14 }}
{{- end -}}

{{- define "outrider.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* What a kube-scheduler of the cluster needs in its configuration to ask our extender. */ -}}
{{- define "outrider.extenders" -}}
{{- $scheduler := .Values.scheduler -}}
{{- $name := printf "outrider-extender.%s.svc" .Release.Namespace -}}
{{- $host := $scheduler.attach.clusterIP | default $name -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
extenders:
  - urlPrefix: {{ ternary "https" "http" (ne $scheduler.attach.tls.secretName "") }}://{{ $host }}:8888
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    weight: {{ $scheduler.extender.weight }}
    httpTimeout: {{ $scheduler.extender.httpTimeout }}
    nodeCacheCapable: true
    ignorable: {{ $scheduler.extender.ignorable }}
    {{- with $scheduler.attach.managedResources }}
    managedResources:
      {{- range . }}
      - {name: {{ . }}, ignoredByScheduler: false}
      {{- end }}
    {{- end }}
    {{- if $scheduler.attach.tls.secretName }}
    enableHTTPS: true
    tlsConfig:
      serverName: {{ $name }}
      caFile: /etc/kubernetes/outrider/ca.crt
      {{- if $scheduler.attach.tls.clientCertificates }}
      certFile: /etc/kubernetes/outrider/client.crt
      keyFile: /etc/kubernetes/outrider/client.key
      {{- end }}
    {{- end }}
{{- end -}}
