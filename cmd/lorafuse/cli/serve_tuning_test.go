//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tuningServer is a server in a process of its own, that can be killed.
type tuningServer struct {
	t       *testing.T
	process *exec.Cmd
	url     string
}

func startTuningServer(t *testing.T, args ...string) *tuningServer {
	t.Helper()
	c, _ := program(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--threads", "1"}, args...)...)
	c.Stderr = nil
	log, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if at := servingAt.FindStringSubmatch(lines.Text()); at != nil {
			go io.Copy(io.Discard, log)
			return &tuningServer{t, c, at[1]}
		}
	}
	require.Fail(t, "the server has not started")
	return nil
}

// ask sends a request whose answer must be OK.
func (s *tuningServer) ask(method, path, kind, body string, into any) {
	s.t.Helper()
	q, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	q.Header.Set("Content-Type", kind)
	a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
	require.NoError(s.t, err)
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, a.StatusCode, "%s", raw)
	require.NoError(s.t, json.Unmarshal(raw, into))
}

// upload sends a file for fine-tuning.
func (s *tuningServer) upload(text string) (id string) {
	s.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	require.NoError(s.t, w.WriteField("purpose", "fine-tune"))
	part, err := w.CreateFormFile("file", "rows.jsonl")
	require.NoError(s.t, err)
	_, err = io.WriteString(part, text)
	require.NoError(s.t, err)
	require.NoError(s.t, w.Close())
	var f struct{ ID string }
	s.ask(http.MethodPost, "/v1/files", w.FormDataContentType(), body.String(), &f)
	return f.ID
}

type tunedJob struct {
	ID, Status string
	Tuned      string `json:"fine_tuned_model"`
	Error      any
}

func (s *tuningServer) create(body string) (j tunedJob) {
	s.t.Helper()
	s.ask(http.MethodPost, "/v1/fine_tuning/jobs", "application/json", body, &j)
	return j
}

func (s *tuningServer) job(id string) (j tunedJob) {
	s.t.Helper()
	s.ask(http.MethodGet, "/v1/fine_tuning/jobs/"+id, "", "", &j)
	return j
}

// steps gives the steps of a job that have events, the first first.
func (s *tuningServer) steps(id string) (all []int) {
	s.t.Helper()
	var events struct {
		Data []struct{ Data *struct{ Step int } }
	}
	s.ask(http.MethodGet, "/v1/fine_tuning/jobs/"+id+"/events?limit=10000", "", "", &events)
	for _, e := range events.Data {
		if e.Data != nil {
			all = append([]int{e.Data.Step}, all...)
		}
	}
	return all
}

// awaitStep waits until a job has done so many steps.
func (s *tuningServer) awaitStep(id string, step int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		all := s.steps(id)
		return len(all) > 0 && all[len(all)-1] >= step
	}, 2*time.Minute, time.Millisecond)
}

// end waits until a job has succeeded.
func (s *tuningServer) end(id string) (j tunedJob) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		j = s.job(id)
		require.NotContains(s.t, []string{"failed", "cancelled"}, j.Status, "%v", j.Error)
		return j.Status == "succeeded"
	}, 2*time.Minute, 5*time.Millisecond)
	return j
}

// A job whose server is killed, ended and started again makes the adapter of `lorafuse
// train` alone, to the bit; so does one that goes on from it, after a restart, while
// another is trained beside it.
func TestServeTrains(t *testing.T) {
	l := newLab(t)
	var rows strings.Builder
	for i := range 40 {
		fmt.Fprintf(&rows, `{"prompt": "%d + %d =", "completion": " %d"}`+"\n", i, i, 2*i)
	}
	alone := func(name, data, more string) string {
		file := l.file(name+".yaml", fmt.Sprintf(`{model: %s, output_dir: %s, data: {train: %s, max_length: 128}, batch_size: 2, save_steps: 0, threads: 1, log: {tensorboard: false, plot: false}, %s}`, llama, l.path(name), data, more))
		succeed(t, "train", file)
		return readText(t, l.path(name+"/adapter/adapter_model.safetensors"))
	}
	sums := l.file("rows.jsonl", rows.String())
	first := alone("first", sums, "adapter: {r: 4, lora_alpha: 8, target_modules: all-linear, lora_dropout: 0.1}, seed: 7, epochs: 20, learning_rate: 4e-4")
	var pairs string
	for i := range 12 {
		pairs += fmt.Sprintf(`{"prompt": "%d + %d =", "chosen": " %d", "rejected": " %d"}`+"\n", i, i, 2*i, 3*i+1)
	}
	third := alone("third", l.file("pairs.jsonl", pairs), "task: preference, preference: {beta: 0.2}, adapter: {r: 4, lora_alpha: 8, target_modules: all-linear}, seed: 9, epochs: 2, learning_rate: 5e-5")
	second := alone("second", sums, "init_adapter: "+l.path("first/adapter")+", seed: 8, epochs: 2, learning_rate: 2e-4")

	args := []string{"--model", llama, "--train-dir", l.path("tuning"), "--train-jobs", "2"}
	s := startTuningServer(t, args...)
	file := s.upload(rows.String())
	j := s.create(`{"model": "model", "training_file": "` + file + `", "suffix": "sums", "seed": 7, "lora": {"r": 4, "lora_dropout": 0.1},
		"method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 20, "batch_size": 2, "learning_rate_multiplier": 2}}}}`)
	s.awaitStep(j.ID, 50)
	require.NoError(t, s.process.Process.Kill())
	s.process.Wait()

	s = startTuningServer(t, args...)
	s.awaitStep(j.ID, 150)
	require.NoError(t, s.process.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.process.Wait())
	require.NoDirExists(t, l.path("tuning/adapters/"+j.ID))

	s = startTuningServer(t, args...)
	var text completion
	s.ask(http.MethodPost, "/v1/completions", "application/json", `{"model": "model", "prompt": "1 + 1 =", "max_tokens": 4}`, &text)
	assert.Equal(t, "sums", s.end(j.ID).Tuned)
	assert.Equal(t, first, readText(t, l.path("tuning/adapters/"+j.ID+"/adapter_model.safetensors")))
	steps := s.steps(j.ID)
	require.Len(t, steps, 400)
	for i, step := range steps {
		require.Equal(t, i+1, step)
	}
	greedy := func(model string) string {
		s.ask(http.MethodPost, "/v1/completions", "application/json", `{"model": "`+model+`", "prompt": "1 + 1 =", "max_tokens": 4, "temperature": 0}`, &text)
		return text.Choices[0].Text
	}
	answer := greedy("sums")
	require.NoError(t, s.process.Process.Kill())
	s.process.Wait()

	s = startTuningServer(t, args...)
	assert.Equal(t, answer, greedy("sums"))
	greedy("sums-step-380")
	more := `"training_file": "` + file + `", "hyperparameters": {"n_epochs": 2, "batch_size": 2}`
	other := s.create(`{"model": "model", "seed": 9, "training_file": "` + s.upload(pairs) + `", "lora": {"r": 4},
		"method": {"type": "dpo", "dpo": {"hyperparameters": {"n_epochs": 2, "batch_size": 2, "beta": 0.2}}}}`)
	j = s.create(`{"model": "sums", "seed": 8, ` + more + `}`)
	s.end(j.ID)
	s.end(other.ID)
	assert.Equal(t, third, readText(t, l.path("tuning/adapters/"+other.ID+"/adapter_model.safetensors")))
	assert.Equal(t, second, readText(t, l.path("tuning/adapters/"+j.ID+"/adapter_model.safetensors")))
	require.Eventually(t, func() bool { left, err := os.ReadDir(l.path("tuning/jobs")); return err == nil && len(left) == 0 }, time.Minute, time.Millisecond)

	r := command(t, "", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	assert.Contains(t, r.stderr, "--train-dir: tuning: "+l.path("tuning/store.db")+": the folder belongs to another server")
}
