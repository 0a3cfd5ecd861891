// Package types decodes the manifests strictly with Kubernetes' own types: a
// field that the API does not know is an error. It is a module of its own so
// that the project does not depend on Kubernetes.
package types

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d manifests, error %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range bytes.Split(text, []byte("\n---\n")) {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal(part, &kind); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			t.Run(filepath.Base(file)+"/"+kind.Kind, func(t *testing.T) { decode(t, part, kind) })
		}
	}
}

// decode decodes one object, and checks that a field which no API has is
// refused.
func decode(t *testing.T, part []byte, kind metav1.TypeMeta) {
	var object any
	var pods []corev1.PodSpec
	switch kind.Kind {
	case "Namespace":
		object = &corev1.Namespace{}
	case "ConfigMap":
		object = &corev1.ConfigMap{}
	case "ServiceAccount":
		object = &corev1.ServiceAccount{}
	case "Service":
		object = &corev1.Service{}
	case "Job":
		object = &batchv1.Job{}
	case "Deployment":
		object = &appsv1.Deployment{}
	case "DaemonSet":
		object = &appsv1.DaemonSet{}
	case "FlinkDeployment":
		// The rest has the schema of Flink's operator, in scripts/check.d/k8s.
		var flink struct {
			Spec struct {
				TaskManager struct {
					PodTemplate map[string]any `json:"podTemplate"`
				} `json:"taskManager"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(part, &flink); err != nil {
			t.Fatal(err)
		}
		var err error
		if part, err = yaml.Marshal(flink.Spec.TaskManager.PodTemplate); err != nil {
			t.Fatal(err)
		}
		object = &corev1.Pod{}
	default:
		t.Fatalf("no type for kind %q", kind.Kind)
	}
	if err := yaml.UnmarshalStrict(part, object); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(append(bytes.TrimSpace(part), "\nnoSuchField: 1\n"...), object); err == nil {
		t.Error("any field is taken")
	}
	switch o := object.(type) {
	case *batchv1.Job:
		labelled(t, o.Spec.Template.Labels, o.Name)
		pods = append(pods, o.Spec.Template.Spec)
		if o.Spec.PodFailurePolicy == nil {
			t.Error("wrong use of the program is tried again")
		}
		if o.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Error("a Job's pods restart never or on failure")
		}
	case *appsv1.Deployment:
		pods = append(pods, o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		pods = append(pods, o.Spec.Template.Spec)
	case *corev1.Pod:
		labelled(t, o.Labels, "flink")
		pods = append(pods, o.Spec)
	}
	for _, pod := range pods {
		if len(pod.NodeSelector) > 0 && !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == "kubernetes.azure.com/scalesetpriority" }) {
			t.Errorf("nodes %v, and the taint of AKS's spot nodes is not tolerated", pod.NodeSelector)
		}
		for _, c := range pod.Containers {
			gpus, ok := c.Resources.Limits["nvidia.com/gpu"]
			tolerated := slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == "nvidia.com/gpu" })
			if wants := strings.Contains(c.Image, "worker-cuda"); wants != ok || wants && (gpus.Value() != 1 || !tolerated || pod.NodeSelector["linnet.io/gpu"] != "true") {
				t.Errorf("container %s of image %s: %d GPUs, tolerated %t, on nodes %v", c.Name, c.Image, gpus.Value(), tolerated, pod.NodeSelector)
			}
		}
	}
}

// labelled checks that scripts/k8s logs NAME finds a pod.
func labelled(t *testing.T, labels map[string]string, name string) {
	t.Helper()
	if got := labels["app.kubernetes.io/component"]; got != name {
		t.Errorf("component %q, want %q", got, name)
	}
}
