{{/* Where the operator works, and with which permissions. */}}

{{/* "true" if it works in all namespaces. As in the existing chart, an empty name stands for all of them. */}}
{{- define "everywhere" -}}
{{- $names := .Values.spark.jobNamespaces | default list }}
{{- if and (has "" $names) (or (gt (len $names) 1) .Values.spark.jobNamespaceSelector) }}
{{- fail "spark.jobNamespaces: an empty name means all namespaces; give names, or jobNamespaceSelector with an empty list, or the empty name alone" }}
{{- end }}
{{- if or (has "" $names) (and (not $names) (not .Values.spark.jobNamespaceSelector)) }}true{{ end }}
{{- end }}

{{/* The listed namespaces, as a YAML list; none if it works everywhere. */}}
{{- define "namespaces" -}}
{{- $names := list }}
{{- if not (include "everywhere" .) }}
{{- $names = .Values.spark.jobNamespaces | default list | uniq }}
{{- end }}
{{- toYaml $names }}
{{- end }}

{{/* The rules of one role in files/operator-role.yaml. */}}
{{- define "rules.file" -}}
{{- range splitList "\n---\n" (.root.Files.Get "files/operator-role.yaml") }}
{{- $role := fromYaml . }}
{{- if eq $role.metadata.name $.role }}
{{- toYaml $role.rules }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same, with `name` instead of the name in the file. */}}
{{- define "rules.named" -}}
{{- $rules := list }}
{{- range include "rules.file" . | fromYamlArray }}
{{- $rules = append $rules (ternary (merge (dict "resourceNames" (list $.name)) .) . (hasKey . "resourceNames")) }}
{{- end }}
{{- toYaml $rules }}
{{- end }}

{{/* What the operator may do in the namespaces of applications. */}}
{{- define "rules.applications" -}}
{{- $rules := list }}
{{- range include "rules.file" (dict "root" . "role" "firesteel-operator") | fromYamlArray }}
{{- $elsewhere := or (has "leases" .resources) (has "namespaces" .resources) (has "nodes" .resources) }}
{{- $logs := and (has "pods/log" .resources) (not $.Values.controller.driverLog.enable) }}
{{- $quotas := and (has "resourcequotas" .resources) (not (and $.Values.webhook.enable $.Values.webhook.resourceQuotaEnforcement.enable)) }}
{{- if not (or $elsewhere $logs $quotas) }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- toYaml $rules }}
{{- end }}

{{/* What it may do in the whole cluster. As a service account it tests the admission policy and need not read it. */}}
{{- define "rules.cluster" -}}
{{- $rules := list }}
{{- if .Values.controller.rbac.clusterScoped }}
{{- range include "rules.file" (dict "root" . "role" "firesteel-operator-definitions") | fromYamlArray }}
{{- if not (has "admissionregistration.k8s.io" .apiGroups) }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- range include "rules.file" (dict "root" . "role" "firesteel-operator") | fromYamlArray }}
{{- if has "nodes" .resources }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.webhook.enable }}
{{- $rules = concat $rules (include "rules.named" (dict "root" . "role" "firesteel-operator-webhook" "name" (include "webhook" .)) | fromYamlArray) }}
{{- end }}
{{- if .Values.spark.jobNamespaceSelector }}
{{- range include "rules.file" (dict "root" . "role" "firesteel-operator") | fromYamlArray }}
{{- if has "namespaces" .resources }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- end }}
{{- if or (include "everywhere" .) .Values.spark.jobNamespaceSelector }}
{{- $rules = concat $rules (include "rules.applications" . | fromYamlArray) }}
{{- end }}
{{- toYaml $rules }}
{{- end }}

{{/* What drivers may do. */}}
{{- define "rules.drivers" -}}
{{- $known := .Files.Get "files/driver-rules.yaml" | fromYaml }}
{{- $rules := list }}
{{- range .Values.spark.rbac.allocators | uniq | sortAlpha }}
{{- $rules = concat $rules (index $known .) }}
{{- end }}
{{- toYaml $rules }}
{{- end }}
