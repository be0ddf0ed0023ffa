package batching_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// TestNothingCompilesForARequest: while a server answers with one adapter, plain adapters of other
// ranks, scales and modules are loaded and asked for: nothing is compiled, and each answer is that of
// its adapter alone. Adapters that need a program of their own get it when they are loaded.
func TestNothingCompilesForARequest(t *testing.T) {
	dev := newFaulty(t)
	m := open(t, llama)
	b := benchOn(t, dev, m, nil, batching.Options{MaxTexts: 12})
	b.dirs = map[string]string{}
	load := func(name, config string) {
		t.Helper()
		b.dirs[name] = built(t, m, config, uint64(len(b.dirs)))
		_, err := b.Adapters().Load(ctx, name, b.dirs[name])
		require.NoError(t, err)
	}
	load("first", `"target_modules":"all-linear","r":16`)

	busy, stop := context.WithCancel(ctx)
	var background [2]chan struct{}
	for i := range background {
		background[i] = make(chan struct{})
		go func() {
			defer close(background[i])
			for busy.Err() == nil {
				_, _, err := collect(b.Engine, greedy("first", prompt(m, uint64(i), 9), 12))
				assert.NoError(t, err)
			}
		}()
	}
	defer func() {
		stop()
		for _, done := range background {
			<-done
		}
	}()
	b.begun()

	ask := func(name string, compiled int64, config string) {
		t.Helper()
		before := dev.compiled.Load()
		load(name, config)
		require.Equal(t, compiled, dev.compiled.Load()-before, "%s: loading compiles", name)
		r := greedy(name, prompt(m, 5, 7), 6)
		want := b.expected(r)
		before = dev.compiled.Load()
		got, _, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, want, got[0], name)
		require.Equal(t, before, dev.compiled.Load(), "%s: a request compiles", name)
	}
	for i, config := range []string{
		`"target_modules":["q_proj"],"r":8`, `"target_modules":["k_proj","down_proj"],"r":64,"use_rslora":true`, `"target_modules":["v_proj"],"r":4,"use_rslora":true`,
		`"target_modules":["q_proj","up_proj","down_proj"],"r":8,"lora_alpha":3,"rank_pattern":{"up_proj":32,"layers.0.*down_proj":4},"alpha_pattern":{"q_proj":5}`,
		`"target_modules":["o_proj"],"r":16,"layers_to_transform":[1]`,
	} {
		ask(fmt.Sprint("plain", i), 0, config)
	}
	ask("other-rank", 1, `"target_modules":["q_proj"],"r":5`)
	ask("other-rank-again", 1, `"target_modules":["v_proj"],"r":5`)
	ask("dora", 1, `"target_modules":["q_proj"],"r":8,"use_dora":true`)
	ask("head", 1, `"target_modules":["lm_head"],"r":8`)
	ask("saved", 1, `"target_modules":["q_proj"],"r":8,"modules_to_save":["lm_head"]`)
	for i := range 10 {
		compiled := int64(0)
		if i == 6 { // all positions of its rank are taken: there are eight other adapters
			compiled = 1
		}
		ask(fmt.Sprint("many", i), compiled, `"target_modules":["q_proj","gate_proj"],"r":16`)
	}
}

// TestFixedAdapters: programs have positions for loaded adapters alone, and answers are the same.
func TestFixedAdapters(t *testing.T) {
	dev := newFaulty(t)
	m := open(t, llama)
	b := benchOn(t, dev, m, nil, batching.Options{MaxTexts: 12, FixedAdapters: true})
	b.dirs = map[string]string{}
	for name, config := range map[string]string{"r8": `"target_modules":"all-linear","r":8`, "r16": `"target_modules":["q_proj"],"r":16`} {
		before := dev.compiled.Load()
		b.dirs[name] = built(t, m, config, uint64(len(name)))
		_, err := b.Adapters().Load(ctx, name, b.dirs[name])
		require.NoError(t, err)
		require.Equal(t, int64(1), dev.compiled.Load()-before, name)
	}
	for name := range b.dirs {
		r := greedy(name, prompt(m, 5, 7), 6)
		want := b.expected(r)
		got, _, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, want, got[0], name)
	}
}

// TestTakeTurns: more adapters than the program has positions for take turns.
func TestTakeTurns(t *testing.T) {
	m := open(t, llama)
	dirs := map[string]string{}
	for i := range 5 {
		dirs[fmt.Sprint("a", i)] = built(t, m, `"target_modules":["q_proj"],"r":8`, uint64(i))
	}
	b := newBench(t, llama, dirs, batching.Options{MaxTexts: 4, Adapters: lora.RegistryOptions{MaxResident: 2}})
	var asked []batching.Request
	var want []answer
	for i := range 20 {
		asked = append(asked, greedy(fmt.Sprint("a", i*7%5), prompt(m, uint64(i), 5), 6))
		want = append(want, b.expected(asked[i]))
	}
	require.Equal(t, want, b.all(asked))
}

// slow is a device that compiles only while it is let.
type slow struct {
	backend.Device
	backend.Memory
	let      chan struct{} // holds one where it is let
	asked    chan struct{} // gets one when it would compile
	compiled atomic.Int64  // programs
}

func (d *slow) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	d.compiled.Add(1)
	select {
	case d.asked <- struct{}{}:
	default:
	}
	<-d.let
	defer func() { d.let <- struct{}{} }()
	return d.Memory.CompileIn(p, arena)
}

// newSlow returns a slow device that may compile.
func newSlow(dev backend.Device) *slow {
	d := &slow{Device: dev, Memory: dev.(backend.Memory), let: make(chan struct{}, 1), asked: make(chan struct{}, 1)}
	d.let <- struct{}{}
	return d
}

// TestRequestsCompileBeside: a request that loads an adapter of an unusual rank from the root waits
// for one compile. Meanwhile requests are answered without a compile: for the model, for a loaded
// adapter, and for adapters of usual ranks that they load from the root.
func TestRequestsCompileBeside(t *testing.T) {
	d := newSlow(testdevice.OpenOn(t, backend.CPU, backend.Options{Threads: 1, BatchInvariant: true}))
	m, root := open(t, llama), t.TempDir()
	dirs := map[string]string{}
	for i, rank := range []string{"8", "16", "4", "5"} {
		dirs["r"+rank] = filepath.Join(root, "r"+rank)
		require.NoError(t, os.Rename(built(t, m, `"target_modules":"all-linear","r":`+rank, uint64(i)), dirs["r"+rank]))
	}
	b := benchOn(t, d, m, nil, batching.Options{Adapters: lora.RegistryOptions{Root: root}})
	b.dirs = dirs
	var asked []batching.Request
	var want []answer
	for i, name := range []string{"r8", "", "r16", "r8", "r4", "r5"} {
		asked = append(asked, greedy(name, prompt(m, uint64(i), 5), 9))
		want = append(want, b.expected(asked[i]))
	}
	ask := func(i int) {
		got, _, err := collect(b.Engine, asked[i])
		assert.NoError(t, err)
		assert.Equal(t, want[i], got[0], asked[i].Adapter)
	}
	ask(0)

	<-d.let // nothing is compiled
	select {
	case <-d.asked:
	default:
	}
	before := d.compiled.Load()
	waiting, others := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(waiting)
		ask(5)
	}()
	<-d.asked
	go func() {
		defer close(others)
		for i := range 5 {
			ask(i)
		}
	}()
	select {
	case <-others:
	case <-waiting:
		t.Error("the request has an answer before its program is compiled")
	case <-time.After(20 * time.Second):
		t.Error("other requests wait for the program")
	}
	require.Equal(t, before+1, d.compiled.Load())
	d.let <- struct{}{}
	<-waiting
	<-others
	ask(5)
	require.Equal(t, before+1, d.compiled.Load())
}

// TestCompiling: while the program for a new kind of adapter is compiled, other requests are
// answered, and requests for the adapter wait. The engine can be closed meanwhile.
func TestCompiling(t *testing.T) {
	dev := testdevice.OpenOn(t, backend.CPU, backend.Options{Threads: 1, BatchInvariant: true})
	d := newSlow(dev)
	b := benchOn(t, d, open(t, llama), map[string]string{"lora": adapters["lora"]}, batching.Options{})
	b.dirs = map[string]string{"lora": adapters["lora"], "dora": adapters["dora"], "third": built(t, b.m, `"target_modules":["v_proj"],"r":3`, 5)}
	none, one, other := greedy("", prompt(b.m, 1, 5), 9), greedy("lora", prompt(b.m, 2, 5), 9), greedy("dora", prompt(b.m, 3, 5), 9)
	wantNone, wantOne, wantOther := b.expected(none), b.expected(one), b.expected(other)
	ask := func(r batching.Request, want answer) {
		t.Helper()
		got, _, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, want, got[0])
	}
	ask(one, wantOne)

	<-d.let // nothing is compiled
	select {
	case <-d.asked:
	default:
	}
	loaded := make(chan error, 1)
	load := func(name string) {
		_, err := b.Adapters().Load(ctx, name, b.dirs[name])
		loaded <- err
	}
	go load("dora")
	<-d.asked
	left, leave := context.WithTimeout(ctx, 10*time.Millisecond)
	defer leave()
	for _, err := range b.Submit(left, other) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	waiting := make(chan []answer)
	go func() {
		got, _, err := collect(b.Engine, other)
		assert.NoError(t, err)
		waiting <- got
	}()
	ask(one, wantOne)
	ask(none, wantNone)
	select {
	case <-waiting:
		t.Fatal("it has no program")
	default:
	}
	d.let <- struct{}{}
	require.NoError(t, <-loaded)
	require.Equal(t, wantOther, (<-waiting)[0])
	ask(one, wantOne)

	<-d.let
	go load("third")
	<-d.asked
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	require.Eventually(t, b.Closing, time.Minute, time.Millisecond)
	d.let <- struct{}{}
	<-closed
	<-loaded
}
