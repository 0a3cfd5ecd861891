package runners

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/options/jobopts"
)

// filled are the flags that --worker_gpu fills in.
var filled = []string{"worker_machine_type", "dataflow_service_options", "sdk_container_image", "worker_binary"}

func TestWorkerGPU(t *testing.T) {
	type flags = map[string]string
	cases := map[string]struct {
		flags flags
		want  flags  // of those filled in
		err   string // "" for none
	}{
		"alone": {flags{"worker_gpu": "1", "worker_binary": "w"}, flags{
			"worker_machine_type":      "g2-standard-8",
			"dataflow_service_options": "worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver;use_nvidia_mps",
			"sdk_container_image":      "r-docker.pkg.dev/p/linnet/worker-cuda:latest",
			"worker_binary":            "w",
		}, ""},
		"four of another type": {flags{"worker_gpu": "4", "worker_gpu_type": "nvidia-tesla-t4", "worker_binary": "w"}, flags{
			"worker_machine_type":      "n1-standard-32",
			"dataflow_service_options": "worker_accelerator=type:nvidia-tesla-t4;count:4;install-nvidia-driver;use_nvidia_mps",
		}, ""},
		"all overridden": {flags{"worker_gpu": "1", "worker_machine_type": "g2-standard-32", "sdk_container_image": "i", "worker_binary": "w",
			"dataflow_service_options": "enable_prime,worker_accelerator=type:nvidia-l4;count:1"}, flags{
			"worker_machine_type":      "g2-standard-32",
			"dataflow_service_options": "enable_prime,worker_accelerator=type:nvidia-l4;count:1",
			"sdk_container_image":      "i",
		}, ""},
		"beside other options": {flags{"worker_gpu": "1", "worker_binary": "w", "dataflow_service_options": "enable_google_cloud_profiler"}, flags{
			"dataflow_service_options": "enable_google_cloud_profiler,worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver;use_nvidia_mps",
		}, ""},
		"custom machine":     {flags{"worker_gpu": "1", "worker_gpu_type": "nvidia-tesla-t4", "worker_machine_type": "n1-custom-6-20480", "worker_binary": "w"}, nil, ""},
		"alias of machine":   {flags{"worker_gpu": "1", "machine_type": "n2-standard-8", "worker_binary": "w"}, nil, "n2-standard-8 cannot carry 1 nvidia-l4"},
		"too small":          {flags{"worker_gpu": "2", "worker_machine_type": "g2-standard-8", "worker_binary": "w"}, nil, "cannot carry 2 nvidia-l4; use g2-standard-24"},
		"unknown type":       {flags{"worker_gpu": "1", "worker_gpu_type": "tpu"}, nil, "--worker_gpu_type=tpu"},
		"odd count":          {flags{"worker_gpu": "3"}, nil, "one of [1 2 4 8]"},
		"negative":           {flags{"worker_gpu": "-1"}, nil, "0 or more"},
		"type alone":         {flags{"worker_gpu_type": "nvidia-tesla-t4"}, nil, "needs --worker_gpu"},
		"spot":               {flags{"worker_gpu": "1", "flexrs_goal": "FLEXRS_COST_OPTIMIZED", "worker_binary": "w"}, nil, "carry no GPU"},
		"no worker":          {flags{"worker_gpu": "1"}, nil, "-tags cuda -o runners.test-cuda ./pipelines/runners.test, then --worker_binary=runners.test-cuda"},
		"of another runner":  {flags{"worker_gpu": "1", "runner": "direct"}, nil, "--worker_gpu is for"},
		"of another, less":   {flags{"worker_gpu": "-1", "runner": "direct"}, nil, "--worker_gpu is for"},
		"type of another":    {flags{"worker_gpu_type": "bogus", "runner": "direct"}, nil, "--worker_gpu is for"},
		"without, unchanged": {flags{}, flags{"worker_machine_type": "", "dataflow_service_options": "", "sdk_container_image": "", "worker_binary": ""}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := flags{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/x"}
			for _, name := range filled {
				all[name] = ""
			}
			maps.Copy(all, c.flags)
			set(t, all)
			err := Check()
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("got %v, want %q", err, c.err)
			}
			for name, want := range c.want {
				if got := value(name); got != want {
					t.Errorf("--%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestWorkerBeside(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := self + "-cuda"
	if err := os.WriteFile(beside, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(beside)
	set(t, map[string]string{"runner": "dataflow", "project": "p", "region": "r", "staging_location": "gs://b/x", "worker_gpu": "1",
		"worker_machine_type": "", "dataflow_service_options": "", "sdk_container_image": "", "worker_binary": ""})
	if err := Check(); err != nil || *jobopts.WorkerBinary != beside {
		t.Errorf("the worker is %q, error %v, want %s", *jobopts.WorkerBinary, err, filepath.Base(beside))
	}
}

// TestCancelDataflow has a service that is asked to cancel a job.
func TestCancelDataflow(t *testing.T) {
	var asked []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"access_token":"x","token_type":"Bearer","expires_in":3600}`))
	})
	mux.HandleFunc("PUT /v1b3/projects/p/locations/r/jobs/{job}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.PathValue("job")+" "+strings.TrimSpace(string(body)))
		w.Write([]byte(`{}`))
	})
	service := httptest.NewServer(mux)
	defer service.Close()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "a@example.org", "token_uri": service.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	set(t, map[string]string{"runner": "dataflow", "project": "p", "region": "r", "dataflow_endpoint": service.URL + "/"})
	if err := cancelJob(t.Context(), "2026-11-30_1"); err != nil || !slices.Equal(asked, []string{`2026-11-30_1 {"requestedState":"JOB_STATE_CANCELLED"}`}) {
		t.Errorf("got %v, asked %q", err, asked)
	}
	set(t, map[string]string{"region": "elsewhere"})
	if err := cancelJob(t.Context(), "2026-11-30_1"); !errors.Is(err, ErrNotCancelled) || !strings.Contains(err.Error(), "404") {
		t.Errorf("of a job that is not there: %v", err)
	}
}

// TestDataflowEnd has what Beam's client says at the end of jobs, of which it has an
// error for none of these.
func TestDataflowEnd(t *testing.T) {
	for _, want := range []string{"succeeded!", "cancelled", "drained"} {
		w := &watcher{quiet: true}
		for _, msg := range []string{"Job state: JOB_STATE_PENDING ...", "Submitted job: 2026-11-30_1", "Job still running ...", "Job 2026-11-30_1 " + want} {
			w.Log(t.Context(), 0, 0, msg)
		}
		if got := w.end(); got != want {
			t.Errorf("it ended %q, want %q", got, want)
		}
	}
}
