// The exercise of tests/clients with client-go: create, watch, patch, apply, logs, exec, delete.
// usage: KUBECONFIG=FILE exercise NAMESPACE
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

const name = "exercise"

func main() {
	if len(os.Args) != 2 {
		fail("usage: exercise NAMESPACE")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}).ClientConfig()
	must(err)
	client, err := kubernetes.NewForConfig(config)
	must(err)
	run(ctx, config, client, os.Args[1])
	fmt.Println("done")
}

func run(ctx context.Context, config *rest.Config, client *kubernetes.Clientset, namespace string) {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err)
	pods := client.CoreV1().Pods(namespace)
	events, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	must(err)
	defer events.Stop()

	grace := int64(1)
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
			Name: "main", Image: "busybox", Command: []string{"sh", "-c", "echo hello from $HOSTNAME; sleep 600"},
		}}},
	}, metav1.CreateOptions{})
	must(err)
	step("create")

	await(events, "ADDED", func(event watch.Event, _ *corev1.Pod) bool { return event.Type == watch.Added })
	await(events, "Ready", func(_ watch.Event, pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return pod.Status.Phase == corev1.PodRunning
			}
		}
		return false
	})
	step("watch")

	patched, err := pods.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"step":"patched"}}}`), metav1.PatchOptions{})
	must(err)
	check(patched.Labels["step"] == "patched", "the label is there: %v", patched.Labels)
	await(events, "the patch", func(_ watch.Event, pod *corev1.Pod) bool { return pod.Labels["step"] == "patched" })
	step("patch")

	maps := client.CoreV1().ConfigMaps(namespace)
	for _, data := range []map[string]string{{"a": "1", "b": "1"}, {"a": "2"}} {
		wanted := applyv1.ConfigMap(name, namespace).WithData(data)
		applied, err := maps.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: name, Force: true})
		must(err)
		check(fmt.Sprint(applied.Data) == fmt.Sprint(data), "applied %v, found %v", data, applied.Data)
	}
	step("apply")

	log := ""
	for log == "" && ctx.Err() == nil {
		stream, err := pods.GetLogs(name, &corev1.PodLogOptions{}).Stream(ctx)
		must(err)
		read, err := io.ReadAll(stream)
		must(err)
		log = string(read)
	}
	check(log == "hello from "+name+"\n", "the log is %q", log)
	step("logs")

	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"sh", "-c", "cat; echo err >&2; exit 3"}, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	socket, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	must(err)
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	must(err)
	for _, executor := range []remotecommand.Executor{socket, spdy} {
		var out, errs bytes.Buffer
		err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &errs})
		var ended exec.CodeExitError
		check(errors.As(err, &ended) && ended.Code == 3, "the exit code is 3: %v", err)
		check(out.String() == "in" && errs.String() == "err\n", "out %q, err %q", out.String(), errs.String())
	}
	step("exec")

	must(pods.Delete(ctx, name, metav1.DeleteOptions{}))
	await(events, "DELETED", func(event watch.Event, _ *corev1.Pod) bool { return event.Type == watch.Deleted })
	_, err = pods.Get(ctx, name, metav1.GetOptions{})
	check(apierrors.IsNotFound(err), "the pod is gone: %v", err)
	must(client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	step("delete")
}

func await(events watch.Interface, what string, holds func(watch.Event, *corev1.Pod) bool) {
	for event := range events.ResultChan() {
		pod, is := event.Object.(*corev1.Pod)
		check(is, "an event without a pod: %v", event)
		if holds(event, pod) {
			return
		}
	}
	fail("the watch ended before %s", what)
}

func step(what string) { fmt.Println("ok:", what) }

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		fail(format, arguments...)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
