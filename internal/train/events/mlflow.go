package events

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// ErrMLflow is wrapped if the settings of MLflow are unusable.
var ErrMLflow = errors.New("unusable MLflow setting")

// Limits of MLflow's REST API for one log-batch request, and of values of parameters.
const (
	mlflowMetrics = 1000
	mlflowParams  = 100
	mlflowValue   = 6000
)

// mlflowWaiting limits the metrics that wait for a server that does not answer. The oldest are
// dropped.
const mlflowWaiting = 100_000

// MLflowOptions configure a run in MLflow.
type MLflowOptions struct {
	Getenv func(string) string // reads the variables of MLflow's client
	Name   string              // of a new run
	Params map[string]string
	File   string // keeps the ID of the run, so that a resumed run continues it
	After  int64  // see [OpenMetrics]
	// Failed receives the first error of the server, within Write or Close. Later ones are not
	// reported.
	Failed func(error)
	// Lost receives, within Close, the number of metrics that did not reach the server, unless all did.
	Lost func(metrics int)
	// Timeout limits a request, and the wait at the end. Zero means 10 seconds.
	Timeout time.Duration
}

// MLflow logs the records of a run to a tracking server of MLflow, over its REST API. Requests
// are made by a goroutine, so that a slow server does not slow down training; records that could
// not be sent are sent again with later ones.
type MLflow struct {
	o            MLflowOptions
	uri          string
	user, secret string // of basic authentication
	token        string
	experiment   [2]string // name and ID, of which one may be empty

	run     string // ID, once the server has it
	params  bool   // the server has the parameters
	records chan []mlflowMetric
	waiting []mlflowMetric
	dropped int // metrics that Write did not queue
	cut     int // metrics cut from waiting
	failed  bool
	failure chan error // the first
	status  string
	stop    context.CancelFunc
	done    chan struct{}
}

// Statuses of runs in MLflow.
const (
	MLflowFinished = "FINISHED"
	MLflowFailed   = "FAILED"
	MLflowKilled   = "KILLED"
)

type mlflowMetric struct {
	Key       string `json:"key"`
	Value     any    `json:"value"`
	Timestamp int64  `json:"timestamp"`
	Step      int64  `json:"step"`
}

type mlflowParam struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// mlflowFile is the contents of the file that keeps the run.
type mlflowFile struct {
	TrackingURI string `json:"tracking_uri"`
	RunID       string `json:"run_id"`
}

// OpenMLflow starts a run, or continues the one of the file. The server, the experiment and the
// authentication are those of the variables that MLflow's client reads: MLFLOW_TRACKING_URI,
// MLFLOW_EXPERIMENT_NAME or MLFLOW_EXPERIMENT_ID, MLFLOW_TRACKING_USERNAME and
// MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN. It returns an ErrMLflow for variables that
// name no server; errors of the server go to Failed.
func OpenMLflow(o MLflowOptions) (*MLflow, error) {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	const variable = "MLFLOW_TRACKING_URI"
	uri := o.Getenv(variable)
	if u, err := url.Parse(uri); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: %s: found %q, expected the address of a tracking server, such as http://localhost:5000", ErrMLflow, variable, uri)
	}
	m := &MLflow{
		o: o, uri: strings.TrimRight(uri, "/"), user: o.Getenv("MLFLOW_TRACKING_USERNAME"), secret: o.Getenv("MLFLOW_TRACKING_PASSWORD"), token: o.Getenv("MLFLOW_TRACKING_TOKEN"),
		experiment: [2]string{o.Getenv("MLFLOW_EXPERIMENT_NAME"), o.Getenv("MLFLOW_EXPERIMENT_ID")},
		records:    make(chan []mlflowMetric, 1024), done: make(chan struct{}), failure: make(chan error, 1), status: MLflowFinished,
	}
	if err := m.restore(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go m.send(ctx)
	return m, nil
}

// restore reads the ID of the run to continue.
func (m *MLflow) restore() error {
	if m.o.After == Fresh {
		return nil
	}
	raw, err := os.ReadFile(m.o.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f mlflowFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMLflow, m.o.File, err)
	}
	if f.TrackingURI == m.uri {
		m.run = f.RunID
	}
	return nil
}

// Write sends a record, later. It never fails.
func (m *MLflow) Write(r Record) error {
	now := time.Now().UnixMilli()
	var all []mlflowMetric
	for _, s := range r.Scalars {
		all = append(all, mlflowMetric{s.Name, protoNumber(s.Value), now, r.Step})
	}
	select {
	case m.records <- all:
	default: // a server that has not answered for a thousand records
		m.dropped += len(all)
	}
	m.report()
	return nil
}

// protoNumber returns a number as JSON of protocol buffers has it.
func protoNumber(x float64) any {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	return x
}

// Sync does nothing: the server keeps what it has.
func (m *MLflow) Sync() error { return nil }

// End sets the status that Close reports, instead of FINISHED.
func (m *MLflow) End(status string) { m.status = status }

// Close sends what is left, within the timeout, ends the run, and reports what was lost.
func (m *MLflow) Close() error {
	close(m.records)
	select {
	case <-m.done:
	case <-time.After(m.o.Timeout):
		m.stop()
		<-m.done
	}
	m.stop()
	m.report()
	if n := m.dropped + m.cut + len(m.waiting); n > 0 {
		m.o.Lost(n)
	}
	return nil
}

// send sends records until Close.
func (m *MLflow) send(ctx context.Context) {
	defer close(m.done)
	m.keep(m.begin(ctx))
	for all := range m.records {
		m.waiting = append(m.waiting, all...)
		for more := true; more; { // one request sends all waiting records
			select {
			case all, open := <-m.records:
				m.waiting, more = append(m.waiting, all...), open
			default:
				more = false
			}
		}
		if n := len(m.waiting) - mlflowWaiting; n > 0 {
			m.waiting = slices.Delete(m.waiting, 0, n)
			m.cut += n
		}
		m.keep(m.flush(ctx))
	}
	err := m.flush(ctx)
	if m.run != "" {
		err = errors.Join(err, m.call(ctx, "runs/update", map[string]any{"run_id": m.run, "status": m.status, "end_time": time.Now().UnixMilli()}, nil))
	}
	m.keep(err)
}

// keep keeps the first error for report.
func (m *MLflow) keep(err error) {
	if err == nil || m.failed {
		return
	}
	m.failed = true
	m.failure <- err
}

// report reports the first error.
func (m *MLflow) report() {
	select {
	case err := <-m.failure:
		m.o.Failed(err)
	default:
	}
}

// flush sends the waiting metrics.
func (m *MLflow) flush(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	for len(m.waiting) > 0 {
		n := min(mlflowMetrics, len(m.waiting))
		if err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": m.run, "metrics": m.waiting[:n]}, nil); err != nil {
			return err
		}
		m.waiting = m.waiting[n:]
	}
	return nil
}

// begin creates the run, or continues it, and logs its parameters, unless the server has them.
func (m *MLflow) begin(ctx context.Context) error {
	if m.params {
		return nil
	}
	if m.run != "" {
		err := m.call(ctx, "runs/update", map[string]any{"run_id": m.run, "status": "RUNNING"}, nil)
		if err == nil {
			m.params = true // of the run that is continued
			return nil
		}
		if !isMissing(err) {
			return err
		}
		m.run = ""
	}
	id, err := m.experimentID(ctx)
	if err != nil {
		return err
	}
	var created struct {
		Run struct {
			Info struct {
				RunID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	err = m.call(ctx, "runs/create", map[string]any{
		"experiment_id": id, "run_name": m.o.Name, "start_time": time.Now().UnixMilli(), "tags": []mlflowParam{{"mlflow.source.name", "lorafuse"}, {"mlflow.source.type", "LOCAL"}},
	}, &created)
	if err != nil {
		return err
	}
	run := created.Run.Info.RunID
	if run == "" {
		return errors.New("runs/create: the answer has no run_id")
	}
	if err := m.logParams(ctx, run); err != nil {
		return err
	}
	raw, err := json.Marshal(mlflowFile{m.uri, run})
	if err != nil {
		return err
	}
	m.run, m.params = run, true
	return fsatomic.WriteFile(m.o.File, append(raw, '\n'))
}

// logParams logs the parameters of a run.
func (m *MLflow) logParams(ctx context.Context, run string) error {
	var all []mlflowParam
	for k, v := range m.o.Params {
		if r := []rune(v); len(r) > mlflowValue {
			v = string(r[:mlflowValue])
		}
		all = append(all, mlflowParam{k, v})
	}
	slices.SortFunc(all, func(a, b mlflowParam) int { return strings.Compare(a.Key, b.Key) })
	for part := range slices.Chunk(all, mlflowParams) {
		if err := m.call(ctx, "runs/log-batch", map[string]any{"run_id": run, "params": part}, nil); err != nil {
			return err
		}
	}
	return nil
}

// experimentID returns the ID of the experiment, which it creates if necessary.
func (m *MLflow) experimentID(ctx context.Context) (string, error) {
	name, id := m.experiment[0], m.experiment[1]
	if id != "" {
		return id, nil
	}
	if name == "" {
		return "0", nil // the experiment Default of every server
	}
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	err := m.call(ctx, "experiments/get-by-name?"+url.Values{"experiment_name": {name}}.Encode(), nil, &found)
	if err == nil {
		return found.Experiment.ID, nil
	}
	if !isMissing(err) {
		return "", err
	}
	var created struct {
		ID string `json:"experiment_id"`
	}
	err = m.call(ctx, "experiments/create", map[string]any{"name": name}, &created)
	return created.ID, err
}

// mlflowError is an error that the server returns.
type mlflowError struct {
	path, status  string
	Code, Message string
}

func (e *mlflowError) Error() string {
	return strings.TrimRight(strings.TrimSpace(fmt.Sprintf("%s: %s: %s %s", e.path, e.status, e.Code, e.Message)), ": ")
}

func isMissing(err error) bool {
	e, ok := errors.AsType[*mlflowError](err)
	return ok && e.Code == "RESOURCE_DOES_NOT_EXIST"
}

// call sends a request, POST with a body and GET without, and decodes the answer into out, which may be nil.
func (m *MLflow) call(ctx context.Context, path string, body map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		method, content = http.MethodPost, bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, m.uri+"/api/2.0/mlflow/"+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if m.user != "" && m.secret != "" {
		r.SetBasicAuth(m.user, m.secret)
	} else if m.token != "" {
		r.Header.Set("Authorization", "Bearer "+m.token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		e := &mlflowError{path: path, status: answer.Status}
		var text struct {
			Code    string `json:"error_code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(raw, &text) == nil {
			e.Code, e.Message = text.Code, text.Message
		}
		return e
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
