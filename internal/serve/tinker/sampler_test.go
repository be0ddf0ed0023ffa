package tinker_test

import (
	"encoding/binary"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
)

// sampled is what a SampleResponse says.
type sampled struct {
	sequences []sequence
	prompt    []float32
	top       []float32 // of the prompt, with the ids
	ids       []int32
	cached    uint64
}

type sequence struct {
	stop     uint64
	tokens   []int32
	logprobs []float32
	top      int // positions
}

// fields goes through the fields of a message.
func fields(t testing.TB, b []byte, each func(n protowire.Number, v []byte, bits uint64)) {
	t.Helper()
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		require.Positive(t, size)
		b = b[size:]
		var v []byte
		var bits uint64
		switch kind {
		case protowire.VarintType:
			bits, size = protowire.ConsumeVarint(b)
		default:
			v, size = protowire.ConsumeBytes(b)
		}
		require.GreaterOrEqual(t, size, 0)
		b = b[size:]
		each(n, v, bits)
	}
}

func numbers(b []byte) (all []int32) {
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, int32(binary.LittleEndian.Uint32(b)))
	}
	return all
}

// sampledOf decodes a SampleResponse.
func sampledOf(t testing.TB, b []byte) (s sampled) {
	t.Helper()
	fields(t, b, func(n protowire.Number, v []byte, bits uint64) {
		switch n {
		case 1:
			var q sequence
			fields(t, v, func(n protowire.Number, v []byte, bits uint64) {
				switch n {
				case 1:
					q.stop = bits
				case 2:
					q.tokens = numbers(v)
				case 3:
					q.logprobs = floats(v)
				case 4:
					fields(t, v, func(n protowire.Number, _ []byte, bits uint64) {
						if n == 4 {
							q.top = int(bits)
						}
					})
				}
			})
			s.sequences = append(s.sequences, q)
		case 2:
			s.prompt = floats(v)
		case 3:
			fields(t, v, func(n protowire.Number, v []byte, _ uint64) {
				switch n {
				case 1:
					s.ids = numbers(v)
				case 2:
					s.top = floats(v)
				}
			})
		case 4:
			s.cached = bits
		}
	})
	return s
}

// draw samples, with what differs from a request for six tokens at temperature 0.
func (p *place) draw(sampler string, seq int, edits ...object) sampled {
	p.Helper()
	return sampledOf(p, p.raw(p.post("asample", request(sampler, seq, edits...))))
}

func request(sampler string, seq int, edits ...object) object {
	settings := object{"max_tokens": 6, "temperature": 0.0, "top_k": -1, "top_p": 1.0}
	r := object{"prompt": object{"chunks": []object{{"type": "encoded_text", "tokens": []int{60, 61}}, {"type": "encoded_text", "tokens": []int{62}}}}, "sampling_params": settings}
	if sampler != "" {
		r["sampling_session_id"], r["seq_id"] = sampler, seq
	}
	for _, e := range edits {
		for k, v := range e {
			if _, ok := r[k]; ok || slices.Contains([]string{"num_samples", "prompt_logprobs", "topk_prompt_logprobs", "topk_sample_logprobs", "prompt_logprobs_last_n", "target_prompt_logprobs", "prompt_alt_tokens_k", "record_stability_info", "base_model", "model_path"}, k) {
				r[k] = v
			} else {
				settings[k] = v
			}
		}
	}
	return r
}

// sampler begins a sampling session of the model alone.
func (p *place) sampler(session string, number int) string {
	p.Helper()
	return p.post("create_sampling_session", object{"session_id": session, "sampling_session_seq_id": number, "base_model": "tiny"})["sampling_session_id"].(string)
}

// alone is what the engine says to the prompt of request, without HTTP.
func (p *place) alone(name string, o generate.GenerateOptions) (ids []int32, logprobs []float32) {
	o.Logprobs = true
	for t, err := range p.engine.Submit(p.Context(), batching.Request{Prompt: []int32{60, 61, 62}, Adapter: name, Answers: []generate.GenerateOptions{o}}) {
		require.NoError(p, err)
		ids, logprobs = append(ids, t.ID), append(logprobs, t.Logprobs.Logprob)
	}
	return ids, logprobs
}

func TestSample(t *testing.T) {
	p := open(t)
	session := p.session()
	s := p.sampler(session, 0)
	assert.Equal(t, s, p.sampler(session, 0), "asked again")
	assert.Equal(t, object{"sampler_id": s, "base_model": "tiny", "model_path": nil}, p.must("samplers/"+s))
	ids, logprobs := p.alone("", generate.GenerateOptions{MaxNewTokens: 6, IgnoreEOS: true})
	got := p.draw(s, 0, object{"stop": []int{}})
	assert.Equal(t, []sequence{{stop: 1, tokens: ids, logprobs: logprobs}}, got.sequences)

	// A stop token is the last of an answer, and a stop text has its tokens in it.
	require.NotEqual(t, ids[0], ids[2])
	got = p.draw(s, 1, object{"stop": []int32{ids[2]}})
	assert.Equal(t, ids[:slices.Index(ids, ids[2])+1], got.sequences[0].tokens)
	assert.EqualValues(t, 0, got.sequences[0].stop)
	for i, stop := range []any{" no such text ", []string{"no", " such text "}} {
		assert.NotEmpty(t, p.draw(s, 2+i, object{"stop": stop}).sequences[0].tokens)
	}
	assert.Len(t, p.draw(s, 4, object{"stop": nil, "max_tokens": nil}).sequences[0].tokens, p.length(s))

	// What is told of the prompt.
	got = p.draw(s, 5, object{"prompt_logprobs": true, "topk_prompt_logprobs": 2, "topk_sample_logprobs": 3, "num_samples": 2})
	require.Len(t, got.prompt, 3)
	assert.True(t, math.IsNaN(float64(got.prompt[0])))
	assert.Negative(t, got.prompt[1])
	assert.Equal(t, []int32{0, 0}, got.ids[:2])
	assert.Equal(t, []float32{-99999, -99999}, got.top[:2])
	assert.Len(t, got.top, 6)
	assert.GreaterOrEqual(t, got.top[2], got.top[3])
	assert.Equal(t, []int{6, 6}, []int{got.sequences[0].top, got.sequences[1].top})
	last := p.draw(s, 6, object{"prompt_logprobs": true, "prompt_logprobs_last_n": 1})
	assert.True(t, math.IsNaN(float64(last.prompt[1])))
	assert.Equal(t, got.prompt[2], last.prompt[2])

	// It can be done without a sampling session.
	assert.Equal(t, ids, p.draw("", 0, object{"base_model": "tiny", "stop": []int{}}).sequences[0].tokens)
}

// length is how many tokens an answer of the model has that is cut by nothing.
func (p *place) length(string) int {
	ids, _ := p.alone("", generate.GenerateOptions{})
	return len(ids)
}

// Draws are a function of the seed, or of the session and the number, and of the answer's
// place: a request that comes again draws the same.
func TestSeeds(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.Keep = 1 })
	session := p.session()
	a, b := p.sampler(session, 0), p.sampler(session, 1)
	hot := object{"temperature": 1.5, "num_samples": 3, "stop": []int{}}
	first := p.draw(a, 0, hot)
	assert.NotEqual(t, first.sequences[0].tokens, first.sequences[1].tokens)
	assert.Equal(t, first.sequences, p.draw(a, 0, hot).sequences)
	assert.NotEqual(t, first.sequences, p.draw(a, 1, hot).sequences)
	assert.NotEqual(t, first.sequences, p.draw(b, 0, hot).sequences)
	seed := object{"seed": 7}
	assert.Equal(t, p.draw(a, 2, hot, seed).sequences, p.draw(b, 3, hot, seed).sequences)
	one := p.draw(a, 4, hot, seed, object{"num_samples": 1})
	assert.Equal(t, one.sequences[0], p.draw(a, 5, hot, seed).sequences[0])

	ids := p.post("asample", request(a, 6, hot))["sample_sequence_ids"].([]any)
	assert.Len(t, ids, 3)
	assert.Equal(t, ids, p.post("asample", request(a, 6, hot))["sample_sequence_ids"])
}

func TestRefusedSamples(t *testing.T) {
	p := open(t)
	s := p.sampler(p.session(), 0)
	for i, c := range []struct {
		edit object
		text string
	}{
		{object{"target_prompt_logprobs": object{"data": []int{1}}}, "target_prompt_logprobs"},
		{object{"prompt_alt_tokens_k": 1}, "prompt_alt_tokens_k"},
		{object{"record_stability_info": true}, "record_stability_info"},
		{object{"prompt": object{"chunks": []object{{"type": "image", "data": "x"}}}}, `"image"`},
		{object{"prompt": object{"chunks": []object{}}}, "prompt has none"},
		{object{"prompt": object{"chunks": []object{{"type": "encoded_text", "tokens": []int{512}}}}}, "512"},
		{object{"prompt": object{"chunks": []object{{"type": "encoded_text", "tokens": make([]int, 128)}}}}, "128"},
		{object{"max_tokens": 0}, "max_tokens"},
		{object{"stop": 5}, "stop: found 5"},
		{object{"stop": []any{"a", 5}}, "stop: found"},
		{object{"stop": []string{""}}, "a stop string is empty"},
		{object{"temperature": -1}, "temperature"},
		{object{"topk_prompt_logprobs": 513}, "topk_prompt_logprobs"},
		{object{"topk_sample_logprobs": -1}, "topk_sample_logprobs"},
		{object{"prompt_logprobs_last_n": 1}, "without prompt_logprobs"},
		{object{"prompt_logprobs_last_n": 3, "prompt_logprobs": true}, "expected 1 to 2"},
	} {
		v := p.result(p.post("asample", request(s, i, c.edit)))
		assert.Equal(t, "user", v["category"], "%v: %v", c.edit, v)
		assert.Contains(t, v["error"], c.text)
	}
	for _, edit := range []object{{"num_samples": 129}, {"base_model": "x"}, {"model_path": "tinker://a/weights/b"}} {
		code, v := p.try("asample", request("", 0, edit))
		assert.Contains(t, []int{400, 404}, code, v)
	}
}

// Weights are sampled from as they were when they were taken, or as they are now.
func TestWeights(t *testing.T) {
	p := open(t)
	session := p.session()
	m := p.model(session, 0, 3)
	greedy := object{"stop": []int{}, "max_tokens": 12}
	options := generate.GenerateOptions{MaxNewTokens: 12, IgnoreEOS: true}
	_, err := p.engine.Adapters().Load(p.Context(), "known", adapter)
	require.NoError(t, err)
	want, _ := p.alone("known", options)
	base, _ := p.alone("", options)
	require.NotEqual(t, base, want)

	live := p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": 1, "sampling_session_seq_id": 0, "kind": "snapshot"})["sampling_session_id"].(string)
	assert.Equal(t, want, p.draw(live, 0, greedy).sequences[0].tokens)
	path := p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": 2, "path": "s"})["path"].(string)
	trained := p.do("save_weights", object{"model_id": m, "seq_id": 3, "path": "t"})["path"].(string)
	for i, uri := range []string{path, trained} {
		s := p.post("create_sampling_session", object{"session_id": session, "sampling_session_seq_id": i + 1, "model_path": uri})["sampling_session_id"].(string)
		assert.Equal(t, uri, p.must("samplers/" + s)["model_path"])
		assert.Equal(t, want, p.draw(s, 0, greedy).sequences[0].tokens)
		assert.Equal(t, want, p.draw("", 0, greedy, object{"model_path": uri}).sequences[0].tokens)
	}
	code, v := p.try("create_sampling_session", object{"session_id": session, "sampling_session_seq_id": 1, "base_model": "tiny"})
	assert.Equal(t, http.StatusBadRequest, code, v)

	var inflight []string
	for i := range 2 {
		v := p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": 4 + i, "sampling_session_seq_id": 5 + i, "kind": "inflight"})
		inflight = append(inflight, v["sampling_session_id"].(string))
	}
	for _, s := range inflight {
		assert.Equal(t, want, p.draw(s, 0, greedy).sequences[0].tokens)
	}
	assert.NotEqual(t, inflight[0], inflight[1])
}

// Where as many sample as may the client is told to wait, and asks again.
func TestSamplesLimit(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.MaxSamples = 2 })
	s := p.sampler(p.session(), 0)
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for i := range 20 {
		wg.Go(func() {
			for {
				code, v := p.try("asample", request(s, i, object{"max_tokens": 40, "stop": []int{}}))
				mu.Lock()
				got[code]++
				mu.Unlock()
				if code == http.StatusOK {
					assert.Len(t, sampledOf(t, p.raw(v)).sequences[0].tokens, 40)
					return
				}
				assert.Equal(t, http.StatusTooManyRequests, code, v)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 20, got[http.StatusOK])
	assert.Positive(t, got[http.StatusTooManyRequests])
}

// The end of a session cuts what it samples.
func TestSamplesEnd(t *testing.T) {
	p := open(t)
	session := p.session()
	s := p.sampler(session, 0)
	var promises []object
	for i := range 30 {
		promises = append(promises, p.post("asample", request(s, i, object{"max_tokens": 120, "stop": []int{}, "num_samples": 4})))
	}
	p.post("sessions/"+session+"/finish", object{})
	cut := 0
	for _, v := range promises {
		w := p.send("POST", "retrieve_future", "application/json", []byte(`{"request_id":"`+v["request_id"].(string)+`"}`))
		require.Equal(t, http.StatusOK, w.Code)
		if w.Header().Get("Content-Type") == "application/json" {
			assert.Equal(t, "server", bodyOf(t, w)["category"])
			cut++
		}
	}
	assert.Positive(t, cut)
	code, _ := p.try("asample", request(s, 99))
	assert.Equal(t, http.StatusGone, code)
}
