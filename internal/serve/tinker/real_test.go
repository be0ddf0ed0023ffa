package tinker_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/tinker"
)

// training is a server whose sessions train.
func training(t testing.TB) *place {
	return open(t, func(o *tinker.Options) {
		e, m := engineOf(t)
		h := e.Beside()
		sessions, err := tinker.NewSessions(h)
		require.NoError(t, err)
		t.Cleanup(h.Close)
		o.Engine, o.Trainer, o.Model = e, sessions, m
	})
}

// step are two chunks of a batch and a step.
var chunks = [][]int32{{60, 61, 62, 63, 64}, {70, 71, 72}}

// run trains a model for three steps, its calls in any order and some of them twice, and
// gives the bytes of its adapter.
func (p *place) run(number int, shuffled bool) string {
	p.Helper()
	session := p.session()
	m := p.post("create_model", object{"session_id": session, "model_seq_id": 0, "base_model": "tiny", "lora_config": object{"rank": 2 + 2*number, "seed": number, "train_unembed": number == 1}})["model_id"].(string)
	var calls []func() object
	for step := range 3 {
		for i, tokens := range chunks {
			var targets []int64
			for _, x := range tokens {
				targets = append(targets, int64(x)+int64(number)+1)
			}
			body := message(m, 3*step+i+1, "cross_entropy", false, tokens, targets)
			calls = append(calls, func() object { return bodyOf(p, p.send("POST", "forward_backward", "application/x-protobuf", body)) })
		}
		calls = append(calls, func() object {
			return p.post("optim_step", object{"model_id": m, "seq_id": 3*step + 3, "adam_params": object{"learning_rate": 0.01}})
		})
	}
	order := make([]int, len(calls))
	for i := range order {
		order[i] = i
	}
	if shuffled {
		order = append(rand.Perm(len(calls)), rand.Perm(len(calls))...)
	}
	promises := make([]object, len(calls))
	for _, i := range order {
		promises[i] = calls[i]()
	}
	for i, v := range promises {
		if i%3 == 2 {
			v = p.result(v)
			assert.NotContains(p, v, "error")
			assert.Positive(p, v["metrics"].(object)["grad_norm"])
		} else {
			p.raw(v)
		}
	}
	saved := p.do("save_weights_external", object{"model_id": m, "seq_id": 10, "path": "end"})["path"].(string)
	raw, err := os.ReadFile(filepath.Join(p.options.Dir, "runs", strings.ReplaceAll(m, ":", "."), strings.TrimPrefix(saved, "tinker://"+m+"/"), "adapter", "adapter_model.safetensors"))
	require.NoError(p, err)
	p.post("sessions/"+session+"/finish", object{})
	return string(raw)
}

// Models of any rank and targets that are trained at once, while others sample, their
// calls out of order and repeated, are bit for bit what each is alone.
func TestTogether(t *testing.T) {
	p := training(t)
	want := []string{p.run(0, false), p.run(1, false)}
	require.NotEqual(t, want[0], want[1])
	got := make([]string, 4)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = p.run(i%2, true) })
	}
	s := p.sampler(p.session(), 0)
	for i := range 10 {
		p.draw(s, i, object{"max_tokens": 20})
	}
	wg.Wait()
	for i := range got {
		assert.True(t, got[i] == want[i%2], "model %d", i)
	}
}

// A state that is loaded goes on to the bits of the model that was saved, and sampling
// has the weights of training from before the first step.
func TestGoOn(t *testing.T) {
	p := training(t)
	session := p.session()
	a := p.model(session, 0, 4)
	base := p.draw(p.sampler(session, 100), 0, object{"stop": []int{}})
	n := map[string]int{}
	seq := func(m string) int {
		n[m]++
		return n[m]
	}
	sample := func(m string, number int) sampled {
		s := p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": seq(m), "sampling_session_seq_id": number})
		return p.draw(s["sampling_session_id"].(string), 0, object{"stop": []int{}})
	}
	assert.Equal(t, base.sequences, sample(a, 0).sequences, "an adapter that does nothing")
	step := func(m string) float32 {
		v := sampledLoss(t, p.raw(bodyOf(t, p.send("POST", "forward_backward", "application/x-protobuf", message(m, seq(m), "cross_entropy", false, chunks[0], []int64{61, 62, 63, 64, 65})))))
		p.do("optim_step", object{"model_id": m, "seq_id": seq(m), "adam_params": object{"learning_rate": 0.05}})
		return v
	}
	first := step(a)
	assert.Less(t, step(a), first)
	saved := p.do("save_weights", object{"model_id": a, "seq_id": seq(a), "path": "s"})["path"]
	b := p.do("load_weights", object{"session_id": session, "model_seq_id": 1, "path": saved, "optimizer": true})["model_id"].(string)
	after := sample(a, 1)
	assert.NotEqual(t, base.sequences, after.sequences)
	assert.Equal(t, after.sequences, sample(b, 2).sequences)
	assert.Equal(t, step(a), step(b))
	assert.Equal(t, step(a), step(b))
	bad := p.do("load_weights", object{"session_id": session, "model_seq_id": 2, "path": "tinker://" + a + "/weights/none", "optimizer": true})
	assert.Equal(t, "user", bad["category"], bad)
}

// A model whose moments have 8 bits says so, and a state that is loaded goes on to its bits.
func TestEightBits(t *testing.T) {
	p := training(t)
	session := p.session()
	eight := object{"type": "adamw_8bit"}
	a := p.do("create_model", object{"session_id": session, "model_seq_id": 0, "base_model": "tiny", "lora_config": object{"rank": 64}, "optimizer_config": eight})["model_id"].(string)
	assert.Equal(t, eight, p.post("get_info", object{"model_id": a})["optimizer_config"])
	seq := map[string]int{}
	next := func(m string) int { seq[m]++; return seq[m] }
	step := func(m string) (loss float32) {
		loss = sampledLoss(t, p.raw(bodyOf(t, p.send("POST", "forward_backward", "application/x-protobuf", message(m, next(m), "cross_entropy", false, chunks[0], []int64{61, 62, 63, 64, 65})))))
		v := p.do("optim_step", object{"model_id": m, "seq_id": next(m), "adam_params": object{"learning_rate": 0.01}, "optimizer_params": eight})
		assert.NotContains(t, v, "error")
		return loss
	}
	first := step(a)
	assert.Less(t, step(a), first)
	saved := p.do("save_weights", object{"model_id": a, "seq_id": next(a), "path": "s"})["path"]
	assert.Equal(t, eight, p.post("weights_info", object{"tinker_path": saved})["optimizer_config"])
	b := p.do("load_weights", object{"session_id": session, "model_seq_id": 1, "path": saved, "optimizer": true})["model_id"].(string)
	for range 2 {
		assert.Equal(t, step(a), step(b))
	}
	c := p.model(session, 2, 64)
	refused := p.do("optim_step", object{"model_id": c, "seq_id": 1, "optimizer_params": eight})
	assert.Contains(t, refused["error"], "the model was created with adamw")
	refused = p.do("load_weights", object{"model_id": c, "seq_id": 2, "path": saved, "optimizer": true})
	assert.Contains(t, refused["error"], "the moments have U8")
}

// sampledLoss is the sum of the log-probabilities of a ForwardBackwardOutput, negative.
func sampledLoss(t testing.TB, b []byte) (loss float32) {
	t.Helper()
	at := strings.Index(string(b), "logprobs")
	require.Positive(t, at)
	for _, x := range floats(b[at+len("logprobs")+4 : at+len("logprobs")+4+4*len(chunks[0])]) {
		require.Negative(t, x)
		loss -= x
	}
	return loss
}
