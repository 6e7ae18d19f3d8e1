{{/* Values of the existing operator's chart that are accepted and have no effect, if they are given: one per line. */}}
{{- define "ignored" -}}
{{- range list "hook" "submitter" }}
{{- if hasKey $.Values . }}
  {{ . }}
{{- end }}
{{- end }}
{{- range list "featureGates" "kubeAPIQPS" "kubeAPIBurst" "batchScheduler" "pprof" "workqueueRateLimiter" }}
{{- if hasKey $.Values.controller . }}
  controller.{{ . }}
{{- end }}
{{- end }}
{{- range $name, $_ := $.Values.webhook }}
{{- if not (has $name (list "enable" "port" "portName" "failurePolicy" "resourceQuotaEnforcement")) }}
  webhook.{{ $name }}
{{- end }}
{{- end }}
{{- end }}
