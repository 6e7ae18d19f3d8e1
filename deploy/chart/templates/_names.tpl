{{/* Names and labels. They are those of the existing operator's chart, on which tools and upgrades in place rely. */}}

{{- define "name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The prefix of all names: the release's name if it contains "spark-operator", otherwise the two joined. */}}
{{- define "fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $joined := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $joined .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "controller" -}}
{{ include "fullname" . }}-controller
{{- end }}

{{- define "lock" -}}
{{ include "controller" . }}-lock
{{- end }}

{{/* Names of Services have at most 63 characters. */}}
{{- define "metrics.service" -}}
{{ include "fullname" . | trunc 48 | trimSuffix "-" }}-controller-svc
{{- end }}

{{- define "webhook" -}}
{{ include "fullname" . }}-webhook
{{- end }}

{{- define "webhook.service" -}}
{{ include "fullname" . | trunc 51 | trimSuffix "-" }}-webhook-svc
{{- end }}

{{- define "webhook.secret" -}}
{{ include "webhook" . }}-certs
{{- end }}

{{- define "controller.account" -}}
{{- $given := .Values.controller.serviceAccount }}
{{- default (ternary (include "controller" .) "default" $given.create) $given.name }}
{{- end }}

{{- define "driver.account" -}}
{{- $given := .Values.spark.serviceAccount }}
{{- default (ternary (printf "%s-spark" (include "fullname" .)) "default" $given.create) $given.name }}
{{- end }}

{{- define "labels.selector" -}}
app.kubernetes.io/name: {{ include "name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "labels.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "controller.selector" -}}
{{ include "labels.selector" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "controller.labels" -}}
{{ include "labels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "image" -}}
{{- $path := list .Values.image.registry .Values.image.repository | compact | join "/" }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $path .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $path (.Values.image.tag | default .Chart.AppVersion | toString) }}
{{- end }}
{{- end }}
