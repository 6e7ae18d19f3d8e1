{{/* The command line of the operator, as a YAML list. */}}
{{- define "arguments" -}}
{{- $c := .Values.controller }}
{{- $list := list "operator" }}
{{- with include "namespaces" . | fromYamlArray }}
{{- $list = append $list (printf "--namespaces=%s" (join "," .)) }}
{{- end }}
{{- with .Values.spark.jobNamespaceSelector }}
{{- $list = append $list (printf "--namespace-selector=%s" .) }}
{{- end }}
{{- $list = append $list (printf "--controller-threads=%d" (int $c.workers)) }}
{{- $list = append $list (printf "--driver-pod-creation-grace-period=%s" $c.driverPodCreationGracePeriod) }}
{{- $list = append $list (printf "--driver-pending-timeout=%s" $c.driverPendingTimeout) }}
{{- $list = append $list (printf "--driver-unreachable-timeout=%s" $c.driverUnreachableTimeout) }}
{{- $list = append $list (printf "--max-tracked-executor-per-app=%d" (int $c.maxTrackedExecutorPerApp)) }}
{{- $list = append $list (printf "--default-time-to-live-seconds=%d" (int64 $c.defaultTimeToLiveSeconds)) }}
{{- $list = append $list (printf "--scheduled-spark-application-timestamp-precision=%s" $c.scheduledSparkApplicationTimestampPrecision) }}
{{- with $c.driverMaster }}
{{- $list = append $list (printf "--driver-master=%s" .) }}
{{- end }}
{{- $list = append $list (printf "--enable-driver-pdb=%t" $c.driverPodDisruptionBudget.enable) }}
{{- $list = append $list (printf "--enable-driver-log=%t" $c.driverLog.enable) }}
{{- $list = append $list (printf "--enable-ui-service=%t" $c.uiService.enable) }}
{{- if $c.uiIngress.enable }}
{{- if not $c.uiService.enable }}
{{- fail "controller.uiIngress.enable needs controller.uiService.enable: an Ingress leads to the driver's Service" }}
{{- end }}
{{- $list = append $list (printf "--ingress-url-format=%s" (required "controller.uiIngress.urlFormat is required with controller.uiIngress.enable" $c.uiIngress.urlFormat)) }}
{{- with $c.uiIngress.ingressClassName }}
{{- $list = append $list (printf "--ingress-class-name=%s" .) }}
{{- end }}
{{- with $c.uiIngress.tls }}
{{- $list = append $list (printf "--ingress-tls=%s" (toJson .)) }}
{{- end }}
{{- with $c.uiIngress.annotations }}
{{- $list = append $list (printf "--ingress-annotations=%s" (toJson .)) }}
{{- end }}
{{- end }}
{{- $list = append $list (printf "--early-executors=%t" $c.executors.early) }}
{{- if $c.executors.driversTrustEachOther }}
{{- $list = append $list "--drivers-trust-each-other" }}
{{- end }}
{{- with $c.executors.perSecond }}
{{- $list = append $list (printf "--executors-per-second=%d" (int64 .)) }}
{{- end }}
{{- with $c.executors.maxPending }}
{{- $list = append $list (printf "--max-pending-executors=%d" (int64 .)) }}
{{- end }}
{{- range $of, $limits := dict "application" $c.executors.perApplication "namespace" $c.executors.perNamespace }}
{{- with $limits.executors }}
{{- $list = append $list (printf "--max-executors-per-%s=%d" $of (int64 .)) }}
{{- end }}
{{- with $limits.cores }}
{{- $list = append $list (printf "--max-executor-cores-per-%s=%d" $of (int64 .)) }}
{{- end }}
{{- with $limits.memory }}
{{- $list = append $list (printf "--max-executor-memory-per-%s=%s" $of .) }}
{{- end }}
{{- end }}
{{- if $c.leaderElection.enable }}
{{- $list = append $list "--leader-election=true" }}
{{- $list = append $list (printf "--leader-election-lock-name=%s" (include "lock" .)) }}
{{- $list = append $list (printf "--leader-election-lock-namespace=%s" .Release.Namespace) }}
{{- $list = append $list (printf "--leader-election-lease-duration=%s" $c.leaderElection.leaseDuration) }}
{{- $list = append $list (printf "--leader-election-renew-deadline=%s" $c.leaderElection.renewDeadline) }}
{{- $list = append $list (printf "--leader-election-retry-period=%s" $c.leaderElection.retryPeriod) }}
{{- else if gt (int $c.replicas) 1 }}
{{- fail "controller.replicas above 1 needs controller.leaderElection.enable: two operators must not act at once" }}
{{- end }}
{{- with .Values.prometheus.metrics }}
{{- if .enable }}
{{- $list = append $list (printf "--metrics-bind-address=:%d" (int .port)) }}
{{- if ne .endpoint "/metrics" }}
{{- $list = append $list (printf "--metrics-endpoint=%s" .endpoint) }}
{{- end }}
{{- if .prefix }}
{{- $list = append $list (printf "--metrics-prefix=%s" .prefix) }}
{{- end }}
{{- if .labels }}
{{- $list = append $list (printf "--metrics-labels=%s" .labels) }}
{{- end }}
{{- if .jobSubmitLatencyBuckets }}
{{- $list = append $list (printf "--metrics-job-submit-latency-buckets=%s" .jobSubmitLatencyBuckets) }}
{{- end }}
{{- if .jobStartLatencyBuckets }}
{{- $list = append $list (printf "--metrics-job-start-latency-buckets=%s" .jobStartLatencyBuckets) }}
{{- end }}
{{- if .tls.enable }}
{{- $list = append $list "--secure-metrics=true" }}
{{- $list = append $list (printf "--metric-tls-min-version=%s" .tls.minVersion) }}
{{- if .tls.secretName }}
{{- $list = append $list "--metrics-tls-cert-file=/etc/firesteel/metrics/tls.crt" }}
{{- $list = append $list "--metrics-tls-key-file=/etc/firesteel/metrics/tls.key" }}
{{- end }}
{{- else if .tls.secretName }}
{{- fail "prometheus.metrics.tls.secretName needs prometheus.metrics.tls.enable" }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.webhook.enable }}
{{- $list = append $list "--enable-webhook=true" }}
{{- $list = append $list (printf "--webhook-port=%d" (int .Values.webhook.port)) }}
{{- $list = append $list (printf "--webhook-svc-name=%s" (include "webhook.service" .)) }}
{{- $list = append $list (printf "--webhook-svc-namespace=%s" .Release.Namespace) }}
{{- $list = append $list (printf "--webhook-secret-name=%s" (include "webhook.secret" .)) }}
{{- $list = append $list (printf "--webhook-secret-namespace=%s" .Release.Namespace) }}
{{- $list = append $list (printf "--validating-webhook-name=%s" (include "webhook" .)) }}
{{- $list = append $list (printf "--webhook-failure-policy=%s" .Values.webhook.failurePolicy) }}
{{- $list = append $list (printf "--enable-resource-quota-enforcement=%t" .Values.webhook.resourceQuotaEnforcement.enable) }}
{{- if .Values.certManager.enable }}
{{- $list = append $list "--enable-cert-manager=true" }}
{{- $list = append $list (printf "--webhook-certificate-name=%s-certificate" (include "fullname" .)) }}
{{- end }}
{{- end }}
{{- if eq $c.logEncoder "json" }}
{{- $list = append $list "--log-json" }}
{{- end }}
{{- toYaml (concat $list $c.extraArgs) }}
{{- end }}
