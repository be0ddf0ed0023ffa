package events

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trackingServer checks requests as MLflow's server does: paths, methods, fields and their types
// (mlflow/protos/service.proto), and the limits of a batch.
type trackingServer struct {
	t           *testing.T
	mu          sync.Mutex
	auth        string
	experiments map[string]string
	runs        map[string]*trackedRun
	broken      bool // answers 503
	requests    int
}

type trackedRun struct {
	Experiment, Name, Status string
	End                      int64
	Params                   map[string]string
	Metrics                  []mlflowMetric
}

func newTrackingServer(t *testing.T) (*trackingServer, *httptest.Server) {
	s := &trackingServer{t: t, experiments: map[string]string{"Default": "0"}, runs: map[string]*trackedRun{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h
}

func (s *trackingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	fail := func(status int, code, message string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error_code": code, "message": message})
	}
	if s.broken {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if got := r.Header.Get("Authorization"); got != s.auth {
		fail(http.StatusUnauthorized, "UNAUTHENTICATED", "found "+got)
		return
	}
	if r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
		fail(http.StatusBadRequest, "BAD_REQUEST", "Content-Type")
		return
	}
	decode := func(to any) bool {
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		err := d.Decode(to)
		if err != nil || r.Method != http.MethodPost {
			fail(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", fmt.Sprint(r.Method, err))
			return false
		}
		return true
	}
	answer := func(x any) { _ = json.NewEncoder(w).Encode(x) }
	switch strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/") {
	case "experiments/get-by-name":
		id, ok := s.experiments[r.URL.Query().Get("experiment_name")]
		if !ok || r.Method != http.MethodGet {
			fail(http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "no such experiment")
			return
		}
		answer(map[string]any{"experiment": map[string]string{"experiment_id": id}})
	case "experiments/create":
		var in struct {
			Name string `json:"name"`
		}
		if decode(&in) {
			s.experiments[in.Name] = fmt.Sprint(len(s.experiments))
			answer(map[string]string{"experiment_id": s.experiments[in.Name]})
		}
	case "runs/create":
		var in struct {
			ExperimentID string        `json:"experiment_id"`
			RunName      string        `json:"run_name"`
			StartTime    int64         `json:"start_time"`
			Tags         []mlflowParam `json:"tags"`
		}
		if decode(&in) {
			id := fmt.Sprintf("run%d", len(s.runs))
			s.runs[id] = &trackedRun{Experiment: in.ExperimentID, Name: in.RunName, Status: "RUNNING", Params: map[string]string{}}
			answer(map[string]any{"run": map[string]any{"info": map[string]string{"run_id": id}}})
		}
	case "runs/log-batch":
		var in struct {
			RunID   string         `json:"run_id"`
			Metrics []mlflowMetric `json:"metrics"`
			Params  []mlflowParam  `json:"params"`
		}
		if !decode(&in) {
			return
		}
		run := s.runs[in.RunID]
		if run == nil || len(in.Metrics) > 1000 || len(in.Params) > 100 || len(in.Metrics)+len(in.Params) > 1000 {
			fail(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", "batch")
			return
		}
		run.Metrics = append(run.Metrics, in.Metrics...)
		for _, p := range in.Params {
			if old, ok := run.Params[p.Key]; ok && old != p.Value || len([]rune(p.Value)) > 6000 {
				fail(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", p.Key)
				return
			}
			run.Params[p.Key] = p.Value
		}
		answer(map[string]any{})
	case "runs/update":
		var in struct {
			RunID   string `json:"run_id"`
			Status  string `json:"status"`
			EndTime int64  `json:"end_time"`
		}
		if !decode(&in) {
			return
		}
		if s.runs[in.RunID] == nil {
			fail(http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "Run not found")
			return
		}
		s.runs[in.RunID].Status, s.runs[in.RunID].End = in.Status, in.EndTime
		answer(map[string]any{})
	default:
		fail(http.StatusNotFound, "ENDPOINT_NOT_FOUND", r.URL.Path)
	}
}

func mlflowOptions(t *testing.T, dir string, env map[string]string, after int64, errs *[]error) MLflowOptions {
	return MLflowOptions{
		Getenv: func(name string) string { return env[name] }, Name: "out", Params: map[string]string{"model": "m", "adapter.r": "8", "long": strings.Repeat("ä", 7000)},
		File: filepath.Join(dir, "mlflow.json"), After: after, Failed: func(err error) { *errs = append(*errs, err) },
		Lost: func(metrics int) { *errs = append(*errs, fmt.Errorf("%d lost", metrics)) }, Timeout: 5 * time.Second,
	}
}

// TestMLflow: records, parameters and the end of a run arrive, and a resumed run continues it.
func TestMLflow(t *testing.T) {
	for name, c := range map[string]struct {
		env              map[string]string
		auth, experiment string
	}{
		"nothing":     {nil, "", "0"},
		"token":       {map[string]string{"MLFLOW_TRACKING_TOKEN": "secret", "MLFLOW_EXPERIMENT_NAME": "über lora"}, "Bearer secret", "1"},
		"password":    {map[string]string{"MLFLOW_TRACKING_USERNAME": "a", "MLFLOW_TRACKING_PASSWORD": "b", "MLFLOW_TRACKING_TOKEN": "x", "MLFLOW_EXPERIMENT_NAME": "Default"}, "Basic YTpi", "0"},
		"experiments": {map[string]string{"MLFLOW_EXPERIMENT_ID": "7"}, "", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			s, h := newTrackingServer(t)
			s.auth = c.auth
			env := map[string]string{"MLFLOW_TRACKING_URI": h.URL + "/"}
			for k, v := range c.env {
				env[k] = v
			}
			var errs []error
			dir := t.TempDir()
			m, err := OpenMLflow(mlflowOptions(t, dir, env, Fresh, &errs))
			require.NoError(t, err)
			for step := range 900 {
				require.NoError(t, m.Write(Record{Step: int64(step), Scalars: []Scalar{{Loss, float64(step) / 4}, {EvalLoss, math.NaN()}}}))
			}
			m.End(MLflowKilled)
			require.NoError(t, m.Close())
			require.Empty(t, errs)
			require.Len(t, s.runs, 1)
			run := s.runs["run0"]
			assert.Equal(t, c.experiment, run.Experiment)
			assert.Equal(t, "out", run.Name)
			assert.Equal(t, MLflowKilled, run.Status)
			assert.NotZero(t, run.End)
			assert.Equal(t, map[string]string{"model": "m", "adapter.r": "8", "long": strings.Repeat("ä", 6000)}, run.Params)
			require.Len(t, run.Metrics, 1800)
			for i := range 900 {
				assert.Equal(t, []any{Loss, float64(i) / 4, int64(i)}, []any{run.Metrics[2*i].Key, run.Metrics[2*i].Value, run.Metrics[2*i].Step})
				assert.Equal(t, []any{EvalLoss, "NaN"}, []any{run.Metrics[2*i+1].Key, run.Metrics[2*i+1].Value})
			}

			m, err = OpenMLflow(mlflowOptions(t, dir, env, 899, &errs))
			require.NoError(t, err)
			require.NoError(t, m.Write(Record{Step: 900, Scalars: []Scalar{{Loss, 1}}}))
			require.NoError(t, m.Close())
			require.Empty(t, errs)
			require.Len(t, s.runs, 1)
			assert.Equal(t, MLflowFinished, run.Status)
			assert.Len(t, run.Metrics, 1801)

			delete(s.runs, "run0") // by somebody
			s.runs["other"] = &trackedRun{}
			m, err = OpenMLflow(mlflowOptions(t, dir, env, 899, &errs))
			require.NoError(t, err)
			require.NoError(t, m.Close())
			require.Empty(t, errs)
			assert.Equal(t, MLflowFinished, s.runs["run1"].Status)
		})
	}
}

// TestMLflowFailures: a server that fails is reported once, and gets all records when it is back.
func TestMLflowFailures(t *testing.T) {
	s, h := newTrackingServer(t)
	s.broken = true
	env := map[string]string{"MLFLOW_TRACKING_URI": h.URL}
	var errs []error
	m, err := OpenMLflow(mlflowOptions(t, t.TempDir(), env, Fresh, &errs))
	require.NoError(t, err)
	for step := range int64(5) {
		require.NoError(t, m.Write(Record{Step: step, Scalars: []Scalar{{Loss, 1}}}))
		require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.requests > int(step) }, time.Minute, time.Millisecond)
	}
	s.mu.Lock()
	s.broken = false
	s.mu.Unlock()
	require.NoError(t, m.Write(Record{Step: 5, Scalars: []Scalar{{Loss, 1}}}))
	require.NoError(t, m.Close())
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "runs/create: 503 Service Unavailable")
	require.Len(t, s.runs["run0"].Metrics, 6)

	s.auth = "Bearer x"
	errs = nil
	m, err = OpenMLflow(mlflowOptions(t, t.TempDir(), env, Fresh, &errs))
	require.NoError(t, err)
	require.NoError(t, m.Write(Record{Step: 5, Scalars: []Scalar{{Loss, 1}}}))
	require.NoError(t, m.Close())
	require.Len(t, errs, 2)
	require.EqualError(t, errs[0], "runs/create: 401 Unauthorized: UNAUTHENTICATED found")
	require.EqualError(t, errs[1], "1 lost")

	over := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer hanging.Close()
	defer close(over)
	env["MLFLOW_TRACKING_URI"] = hanging.URL
	o := mlflowOptions(t, t.TempDir(), env, Fresh, &errs)
	o.Timeout, errs = 50*time.Millisecond, nil
	m, err = OpenMLflow(o)
	require.NoError(t, err)
	for range 3000 { // more than the queue holds
		require.NoError(t, m.Write(Record{Step: 5, Scalars: []Scalar{{Loss, 1}, {EvalLoss, 2}}}))
	}
	require.NotZero(t, m.dropped)
	require.NoError(t, m.Close())
	require.Len(t, errs, 2)
	require.EqualError(t, errs[1], "6000 lost")
}

func TestMLflowSettings(t *testing.T) {
	for _, uri := range []string{"", "localhost:5000", "sqlite:///mlflow.db", "databricks", "http://", "http://%zz"} {
		_, err := OpenMLflow(MLflowOptions{Getenv: func(string) string { return uri }})
		require.ErrorIs(t, err, ErrMLflow)
		require.ErrorContains(t, err, fmt.Sprintf("MLFLOW_TRACKING_URI: found %q, expected the address of a tracking server", uri))
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mlflow.json"), []byte("{"), 0o666))
	_, err := OpenMLflow(mlflowOptions(t, dir, map[string]string{"MLFLOW_TRACKING_URI": "http://localhost:1"}, 3, new([]error)))
	require.ErrorIs(t, err, ErrMLflow)
	require.ErrorContains(t, err, "mlflow.json")
}

// The bytes are those of summary.proto: Summary{value: {tag, tensor: {dtype: DT_STRING,
// tensor_shape: {dim: {size: 1}}, string_val}, metadata: {plugin_data: {plugin_name}}}}.
func TestTextEvent(t *testing.T) {
	got := textEvent(0, Text{Step: 300, Tag: "t", Text: "hey"})
	want := []byte{0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0xAC, 0x02,
		0x2A, 30, 0x0A, 28, 0x0A, 1, 't',
		0x42, 13, 0x08, 7, 0x12, 4, 0x12, 2, 0x08, 1, 0x42, 3, 'h', 'e', 'y',
		0x4A, 8, 0x0A, 6, 0x0A, 4, 't', 'e', 'x', 't'}
	assert.Equal(t, want, got)
	assert.ErrorIs(t, (&TensorBoard{}).WriteText(Text{Text: strings.Repeat("x", largestFrame)}), ErrRecord)
}
