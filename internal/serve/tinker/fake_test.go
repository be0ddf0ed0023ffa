package tinker_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	folder  = "../../../testdata/lm/llama/model"
	adapter = "../../../testdata/lm/llama/adapters/lora"
)

// noter is a trainer that does nothing but note what it is asked for.
type noter struct {
	mu    sync.Mutex
	calls []string
	gate  chan struct{} // each pass waits for something in it, unless it is nil
	model *model.Model
}

func (t *noter) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, fmt.Sprintf(format, args...))
}

// noted are the calls so far.
func (t *noter) noted() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.calls...)
}

func (t *noter) New(_ context.Context, o session.Options) (tinker.Session, error) {
	if o.Rank < 1 {
		return nil, fmt.Errorf("rank: %w: found %d", session.ErrInput, o.Rank)
	}
	t.note("new %d", o.Rank)
	return &fake{t, o.Rank}, nil
}

// fake is a session of it, known by its rank.
type fake struct {
	t    *noter
	rank int
}

func (f *fake) ForwardBackward(ctx context.Context, data []session.Datum, l session.Loss, forwardOnly bool) (*session.Output, error) {
	if f.t.gate != nil {
		select {
		case <-f.t.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if l.Name == "gspo" {
		return nil, fmt.Errorf("loss %q: %w", l.Name, session.ErrInput)
	}
	if l.Name == "panic" {
		panic("at the disco")
	}
	f.t.note("%d: %s %d %v", f.rank, l.Name, data[0].Tokens[0], forwardOnly)
	out := &session.Output{Metrics: map[string]float64{"loss:sum": float64(len(data))}}
	for _, d := range data {
		p := make([]float32, len(d.Targets))
		for i := range p {
			p[i] = -float32(d.Targets[i])
		}
		out.Logprobs = append(out.Logprobs, p)
	}
	return out, nil
}

func (f *fake) OptimStep(_ context.Context, a trainer.Adam) (map[string]float64, error) {
	f.t.note("%d: step %v", f.rank, a.LearningRate)
	return map[string]float64{"grad_norm": 1}, nil
}

func (f *fake) Save(_ context.Context, dir string, optimizer bool) error {
	f.t.note("%d: save %v", f.rank, optimizer)
	return os.CopyFS(dir, os.DirFS(adapter))
}

func (f *fake) Snapshot(context.Context) (*lora.State, error) {
	f.t.note("%d: snapshot", f.rank)
	m := f.t.model
	return lora.LoadState(adapter, m, m.Config.ModelType, m.Modules())
}

func (f *fake) Load(_ context.Context, dir string, optimizer bool) error {
	if _, err := os.Stat(dir + "/adapter_config.json"); err != nil {
		return err
	}
	f.t.note("%d: load %v", f.rank, optimizer)
	return nil
}

func (f *fake) Close() { f.t.note("%d: close", f.rank) }

// place is a server with what is below it.
type place struct {
	testing.TB
	*tinker.Server
	trainer *noter
	engine  *batching.Engine
	options tinker.Options
	log     *lines
	key     string // of the client; empty: tml-x
}

// engineOf samples with the model of the tests.
func engineOf(t testing.TB) (*batching.Engine, *model.Model) {
	t.Helper()
	m, err := model.Open(folder)
	require.NoError(t, err)
	dev := testdevice.Open(t, backend.Options{Threads: 1, BatchInvariant: true})
	e, err := batching.New(context.Background(), dev, m, batching.Options{MaxTexts: 8})
	require.NoError(t, err)
	t.Cleanup(func() {
		e.Close()
		m.Close()
	})
	return e, m
}

// lines is a log that several goroutines write to.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// open is a server whose sessions train nothing.
func open(t testing.TB, edits ...func(*tinker.Options)) *place {
	t.Helper()
	e, m := engineOf(t)
	p := &place{TB: t, trainer: &noter{model: m}, engine: e, log: &lines{}}
	p.options = tinker.Options{
		Engine: e, Trainer: p.trainer, Model: m, Name: "tiny", MaxLength: e.MaxLength(), Dir: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(p.log, nil)), Poll: 20 * time.Second,
	}
	for _, edit := range edits {
		edit(&p.options)
	}
	p.start()
	t.Cleanup(func() { p.Close() })
	return p
}

// start starts the server, again if it was closed.
func (p *place) start() {
	p.Helper()
	s, err := tinker.New(p.options)
	require.NoError(p, err)
	p.Server = s
}

// send gives the status and the body of an answer.
func (p *place) send(method, path, kind string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/api/v1/"+path, bytes.NewReader(body))
	if body != nil {
		r.Header.Set("Content-Type", kind)
	}
	r.Header.Set("X-API-Key", cmp.Or(p.key, "tml-x"))
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// object is any JSON object.
type object = map[string]any

// try posts JSON.
func (p *place) try(path string, body object) (int, object) {
	p.Helper()
	return p.json(http.MethodPost, path, body)
}

// json sends JSON.
func (p *place) json(method, path string, body object) (int, object) {
	p.Helper()
	raw, err := json.Marshal(body)
	require.NoError(p, err)
	return p.read(p.send(method, path, "application/json", raw))
}

// get asks for JSON.
func (p *place) get(path string) (int, object) {
	p.Helper()
	return p.read(p.send(http.MethodGet, path, "", nil))
}

func (p *place) read(w *httptest.ResponseRecorder) (int, object) {
	p.Helper()
	var v object
	if w.Body.Len() > 0 {
		require.NoError(p, json.Unmarshal(w.Body.Bytes(), &v), w.Body)
	}
	return w.Code, v
}

// post posts JSON that must be taken.
func (p *place) post(path string, body object) object {
	p.Helper()
	code, v := p.try(path, body)
	require.Equal(p, http.StatusOK, code, "%s %v: %v", path, body, v)
	return v
}

// result waits for the answer to a call.
func (p *place) result(promise object) object {
	p.Helper()
	v := p.post("retrieve_future", object{"request_id": promise["request_id"], "allow_metadata_only": true})
	require.NotEqual(p, "try_again", v["type"], promise)
	return v
}

// do is a call and its answer.
func (p *place) do(path string, body object) object {
	p.Helper()
	return p.result(p.post(path, body))
}

// raw is the protobuf answer to a call.
func (p *place) raw(promise object) []byte {
	p.Helper()
	body, err := json.Marshal(object{"request_id": promise["request_id"]})
	require.NoError(p, err)
	w := p.send(http.MethodPost, "retrieve_future", "application/json", body)
	require.Equal(p, http.StatusOK, w.Code)
	require.Equal(p, "application/x-protobuf", w.Header().Get("Content-Type"), w.Body)
	return w.Body.Bytes()
}

// session begins one.
func (p *place) session() string {
	p.Helper()
	return p.post("create_session", object{"tags": []string{}, "sdk_version": "0.38.0"})["session_id"].(string)
}

// model begins one of a session, with a rank that it is known by.
func (p *place) model(session string, number, rank int) string {
	p.Helper()
	v := p.do("create_model", object{"session_id": session, "model_seq_id": number, "base_model": "tiny", "lora_config": object{"rank": rank}})
	require.Equal(p, fmt.Sprintf("%s:train:%d", session, number), v["model_id"], v)
	return v["model_id"].(string)
}

// forward sends a forward_backward of one datum with one token.
func (p *place) forward(model string, seq, token int, loss string) *httptest.ResponseRecorder {
	return p.send(http.MethodPost, "forward_backward", "application/x-protobuf", message(model, seq, loss, false, []int32{int32(token)}, []int64{int64(token + 1)}))
}

// message is a ForwardBackwardRequest of one datum.
func message(model string, seq int, loss string, forwardOnly bool, tokens []int32, targets []int64) []byte {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	number := func(b []byte, n protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	var ids, wanted []byte
	for _, x := range tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(x))
	}
	for _, x := range targets {
		wanted = binary.LittleEndian.AppendUint64(wanted, uint64(x))
	}
	tensor := number(field(nil, 1, wanted), 3, 2)
	tensor = field(tensor, 4, protowire.AppendVarint(nil, uint64(len(targets))))
	datum := field(nil, 1, field(nil, 1, field(nil, 1, ids)))
	datum = field(datum, 2, field(field(nil, 1, []byte("target_tokens")), 2, tensor))
	b := number(field(nil, 1, []byte(model)), 2, uint64(seq))
	b = field(field(b, 3, datum), 4, []byte(loss))
	if forwardOnly {
		b = number(b, 6, 1)
	}
	return b
}

// floats are little-endian numbers.
func floats(b []byte) (all []float32) {
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return all
}

// bodyOf decodes a body.
func bodyOf(t testing.TB, w *httptest.ResponseRecorder) (v object) {
	t.Helper()
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), w.Body)
	return v
}

// logged waits until the log has a text.
func (p *place) logged(text string) {
	p.Helper()
	require.Eventually(p, func() bool { return strings.Contains(p.log.String(), text) }, time.Minute, 5*time.Millisecond, text)
}
