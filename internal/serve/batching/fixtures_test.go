package batching_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

const (
	llama      = "../../../testdata/lm/llama/model"
	smallLlama = "../../../testdata/peft/base/small-llama"
)

var ctx = context.Background()

// bench is an engine, and what says what its answers must be.
type bench struct {
	*batching.Engine
	t     testing.TB
	dev   backend.Device
	m     *model.Model
	alone *generate.Generator
	has   string // the adapter of alone
	dirs  map[string]string
	gate  *sync.Mutex // who holds it keeps the engine from going on after a step
}

// await waits until so many requests are there.
func (b *bench) await(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		s, there := b.Stats(), 0
		for _, c := range append(s.Running, s.Waiting...) {
			there += c.Requests
		}
		return there == n
	}, time.Minute, 100*time.Microsecond)
}

// begun waits until a step has been made with a request: what comes later is not in it.
func (b *bench) begun() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return len(b.Stats().Running) > 0 }, time.Minute, 100*time.Microsecond)
}

func open(t testing.TB, dir string) *model.Model {
	t.Helper()
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// newBench opens an engine on a device that is batch invariant, with adapters by name.
func newBench(t testing.TB, dir string, dirs map[string]string, o batching.Options) *bench {
	t.Helper()
	return benchOn(t, testdevice.Open(t, backend.Options{Threads: 1, BatchInvariant: true}), open(t, dir), dirs, o)
}

func benchOn(t testing.TB, dev backend.Device, m *model.Model, dirs map[string]string, o batching.Options) *bench {
	t.Helper()
	gate, step := &sync.Mutex{}, o.OnStep
	o.OnStep = func(s batching.Step) {
		gate.Lock()
		defer gate.Unlock()
		if step != nil {
			step(s)
		}
	}
	e, err := batching.New(ctx, dev, m, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		gate.TryLock() // where a test has failed it may be held
		gate.Unlock()
		e.Close()
	})
	for name, dir := range dirs {
		_, err := e.Adapters().Load(ctx, name, dir)
		require.NoError(t, err, name)
	}
	alone, err := generate.New(ctx, dev, m, nil, generate.Options{MaxLength: e.MaxLength()})
	require.NoError(t, err)
	t.Cleanup(alone.Close)
	return &bench{Engine: e, t: t, dev: dev, m: m, alone: alone, dirs: dirs, gate: gate}
}

// answer is what came of one answer.
type answer struct {
	IDs    []int32
	Said   []generate.Logprobs
	Text   string
	Finish generate.Finish
}

// state is an adapter, nil for none.
func (b *bench) state(name string) *lora.State {
	b.t.Helper()
	if name == "" {
		return nil
	}
	s, err := lora.LoadState(b.dirs[name], b.m, b.m.Config.ModelType, b.m.Modules())
	require.NoError(b.t, err)
	return s
}

// ofPrompt is what a Scorer says of the tokens of a prompt.
func (b *bench) ofPrompt(s *generate.Scorer, r batching.Request) []generate.Logprobs {
	b.t.Helper()
	require.NoError(b.t, s.SetAdapter(b.state(r.Adapter)))
	logits, err := s.Logits(ctx, [][]int32{r.Prompt})
	require.NoError(b.t, err)
	said := []generate.Logprobs{{}}
	for i, id := range r.Prompt[1:] {
		l, err := generate.NewLogprobs(logits[i*b.m.Config.VocabSize:][:b.m.Config.VocabSize], id, r.Answers[0].TopLogprobs)
		require.NoError(b.t, err)
		said = append(said, l)
	}
	return said
}

// expected is what a Generator alone answers.
func (b *bench) expected(r batching.Request) answer {
	b.t.Helper()
	if b.has != r.Adapter {
		require.NoError(b.t, b.alone.SetAdapter(ctx, b.state(r.Adapter)))
		b.has = r.Adapter
	}
	b.alone.Reset()
	var a answer
	result, err := b.alone.Generate(ctx, r.Prompt, r.Answers[0], func(t generate.Token) error {
		a.Said = append(a.Said, t.Logprobs)
		return nil
	})
	require.NoError(b.t, err)
	a.IDs, a.Text, a.Finish = result.IDs, result.Text, result.Finish
	return a
}

// submitter is an engine or a group of them.
type submitter interface {
	Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error]
}

// collect goes through an answer of one request.
func collect(e submitter, r batching.Request) (all []answer, last batching.Times, err error) {
	all = make([]answer, len(r.Answers))
	for t, err := range e.Submit(ctx, r) {
		if err != nil {
			return all, last, err
		}
		a := &all[t.Answer]
		a.IDs, a.Said, a.Text, a.Finish = append(a.IDs, t.ID), append(a.Said, t.Logprobs), a.Text+t.Text, t.Finish
		if t.Finish != "" {
			last = t.Times
		}
	}
	return all, last, nil
}

// greedy is a request for the most likely tokens, with what the model says of each.
func greedy(adapter string, prompt []int32, tokens int) batching.Request {
	return batching.Request{Prompt: prompt, Adapter: adapter, Answers: []generate.GenerateOptions{{MaxNewTokens: tokens, IgnoreEOS: true, Logprobs: true, TopLogprobs: 2}}}
}

// prompt is n ids that look like nothing.
func prompt(m *model.Model, seed uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(m.Config.VocabSize))
	}
	return ids
}

// casesOf are the adapters of PEFT for a base model, by name.
func casesOf(t testing.TB, base string) map[string]string {
	dirs := map[string]string{}
	paths, err := filepath.Glob("../../../testdata/peft/*/case.json")
	require.NoError(t, err)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		var c struct{ Base string }
		require.NoError(t, json.Unmarshal(raw, &c))
		dir := filepath.Dir(path)
		_, err = os.Stat(filepath.Join(dir, "adapter", lora.WeightsFile))
		if filepath.Join(dir, c.Base) == filepath.Clean(base) && err == nil && !strings.Contains(dir, "pissa-niter") {
			dirs[filepath.Base(dir)] = filepath.Join(dir, "adapter")
		}
	}
	require.NotEmpty(t, dirs)
	return dirs
}

// built writes an adapter of random numbers.
func built(t testing.TB, m *model.Model, config string, seed uint64) string {
	t.Helper()
	c, err := lora.ParseConfig([]byte(`{"peft_type":"LORA",` + config + `}`))
	require.NoError(t, err)
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	s, err := p.InitialState(m, seed)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(seed, 7))
	for _, spec := range p.Tensors() {
		for i := range s.Values[spec.Key] {
			s.Values[spec.Key][i] += float32(r.NormFloat64()) / 8
		}
	}
	saved, tensors, err := s.Tensors(false)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), fmt.Sprint("adapter", seed))
	require.NoError(t, lora.Save(dir, saved, tensors))
	return dir
}
