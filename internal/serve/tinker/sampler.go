package tinker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// sampler is a sampling session: weights that a client samples from.
type sampler struct {
	id      string
	tenant  *tenant
	weights *weights // nil for the base model
	path    string   // URI of the saved weights; empty if they were not saved
	model   *trainee // if the weights are its live weights, else nil
}

// addSampler returns the sampling session of a number, and creates it if it does not exist.
func (s *Server) addSampler(x *tenant, number int64, w *weights, path string, m *trainee) (*sampler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !x.ended.IsZero() {
		return nil, fmt.Errorf("%w: %s", errEnded, x.why)
	}
	id := x.id + ":sample:" + strconv.FormatInt(number, 10)
	if found := s.samplers[id]; found != nil {
		if found.weights != w {
			return nil, fmt.Errorf("%w: sampling_session_seq_id: %d stands for other weights already", ErrRequest, number)
		}
		return found, nil
	}
	found := &sampler{id: id, tenant: x, weights: w, path: path, model: m}
	s.samplers[id] = found
	return found, nil
}

// sampler returns a sampling session that the client sees and whose session has not ended.
func (s *Server) sampler(who keys.Client, id string) (*sampler, error) {
	s.mu.Lock()
	x := s.samplers[id]
	s.mu.Unlock()
	if x == nil || !who.Sees(x.tenant.owner) {
		return nil, fmt.Errorf("%w: sampling session %.100q", ErrNotFound, id)
	}
	if _, err := s.session(who, x.tenant.id); err != nil {
		return nil, err
	}
	return x, nil
}

// source returns the weights that a request names, or nil for the base model.
func (s *Server) source(who keys.Client, base, path string) (*weights, error) {
	if base != "" || path == "" {
		if err := s.isBase(base); err != nil {
			return nil, err
		}
	}
	if path == "" {
		return nil, nil
	}
	p, err := s.store.find(who, path)
	if err != nil {
		return nil, err
	}
	if err := s.isBase(p.BaseModel); err != nil {
		return nil, err
	}
	return s.saved(p), nil
}

func (s *Server) createSampler(c *web.Call) error {
	var r struct {
		Session string `json:"session_id"`
		Number  *int64 `json:"sampling_session_seq_id"`
		Base    string `json:"base_model"`
		Path    string `json:"model_path"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	x, err := s.session(c.Who, r.Session)
	if err != nil {
		return err
	}
	if r.Number == nil || *r.Number < 0 {
		return invalid("sampling_session_seq_id: expected a number from 0")
	}
	if err := s.open(); err != nil {
		return err
	}
	w, err := s.source(c.Who, r.Base, r.Path)
	if err != nil {
		return err
	}
	if w != nil { // reports errors of the weights early
		if err := s.hold(c.Request.Context(), w); err != nil {
			return err
		}
		w.release()
	}
	found, err := s.addSampler(x, *r.Number, w, r.Path, nil)
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{"type": "create_sampling_session", "sampling_session_id": found.id})
}

func (s *Server) getSampler(c *web.Call) error {
	x, err := s.sampler(c.Who, c.Request.PathValue("sampler"))
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{"sampler_id": x.id, "base_model": s.options.Name, "model_path": orNull(x.path)})
}

// sampleRequest is the protocol's SampleRequest.
type sampleRequest struct {
	Sampler   string `json:"sampling_session_id"`
	Seq       *int64 `json:"seq_id"`
	Base      string `json:"base_model"`
	Path      string `json:"model_path"`
	Samples   *int   `json:"num_samples"`
	Prompt    input  `json:"prompt"`
	Params    params `json:"sampling_params"`
	Logprobs  bool   `json:"prompt_logprobs"`
	TopPrompt int    `json:"topk_prompt_logprobs"`
	TopSample int    `json:"topk_sample_logprobs"`
	LastN     *int   `json:"prompt_logprobs_last_n"`

	Targets json.RawMessage `json:"target_prompt_logprobs"`
	AltK    int             `json:"prompt_alt_tokens_k"`
	Stable  bool            `json:"record_stability_info"`
}

// input is the protocol's ModelInput.
type input struct {
	Chunks []struct {
		Type   string  `json:"type"`
		Tokens []int32 `json:"tokens"`
	} `json:"chunks"`
}

// params is the protocol's SamplingParams.
type params struct {
	MaxTokens   *int            `json:"max_tokens"`
	Seed        *int64          `json:"seed"`
	Stop        json.RawMessage `json:"stop"`
	Temperature *float64        `json:"temperature"`
	TopK        *int            `json:"top_k"`
	TopP        *float64        `json:"top_p"`
}

func (s *Server) sample(c *web.Call) error {
	var r sampleRequest
	if err := c.Decode(&r); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	var w *weights
	var x *tenant
	ctx, client, id := s.context, c.Who.Name, newID()
	if r.Sampler != "" {
		found, err := s.sampler(c.Who, r.Sampler)
		if err != nil {
			return err
		}
		if r.Seq == nil || *r.Seq < 0 {
			return invalid("seq_id: expected a number from 0")
		}
		x, w = found.tenant, found.weights
		ctx, client, id = x.context, x.id, found.id+":"+strconv.FormatInt(*r.Seq, 10)
	} else {
		var err error
		if w, err = s.source(c.Who, r.Base, r.Path); err != nil {
			return err
		}
	}
	n := of(r.Samples, 1)
	if n < 1 || n > s.options.MaxAnswers {
		return invalid("num_samples: found %d, expected 1 to %d", n, s.options.MaxAnswers)
	}
	sequences := make([]string, n)
	for i := range sequences {
		sequences[i] = id + ":" + strconv.Itoa(i)
	}
	salt := ""
	if !s.options.SharePrefixCache {
		salt = c.Who.Salt("")
	}
	f := s.futures.find(id)
	if f == nil {
		if s.sampling.Add(1) > int64(s.options.MaxSamples) {
			s.sampling.Add(-1)
			return full(1, "%d requests sample already, as many as may", s.options.MaxSamples)
		}
		var fresh bool
		if f, fresh = s.futures.begin(id, x, c.Who.Name); !fresh {
			s.sampling.Add(-1)
		} else {
			s.work.Go(func() {
				defer s.sampling.Add(-1)
				a, err := s.guard(ctx, func(ctx context.Context) (answer, error) { return s.draw(ctx, &r, w, n, id, client, salt) })
				if err != nil {
					a = s.failed(err)
				}
				f.finish(a)
			})
		}
	}
	return promise(c, f, "", sequences)
}

// draw samples. The result depends only on the request and its id.
func (s *Server) draw(ctx context.Context, r *sampleRequest, w *weights, n int, id, client, salt string) (answer, error) {
	adapter := ""
	if w != nil {
		if err := s.hold(ctx, w); err != nil {
			return answer{}, err
		}
		defer w.release()
		adapter = w.name
	}
	for {
		q, err := s.batchingRequest(r, n, id) // per attempt, since decoders have state
		if err != nil {
			return answer{}, err
		}
		q.Client, q.Adapter, q.Salt = client, adapter, salt
		out, err := s.submit(ctx, r, q)
		if !errors.Is(err, batching.ErrQueue) {
			if err != nil {
				return answer{}, err
			}
			return answer{proto: out.marshal()}, nil
		}
		select { // the engine's queue is full
		case <-time.After(queueWait):
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// queueWait is the delay before a request that found the engine's queue full is retried.
const queueWait = 50 * time.Millisecond

// mostCells limits the cells of top-k log-probabilities, for the prompt and for each sample.
const mostCells = 1 << 22

// batchingRequest converts a request to a request of the engine.
func (s *Server) batchingRequest(r *sampleRequest, n int, id string) (batching.Request, error) {
	var q batching.Request
	wrong := func(format string, args ...any) (batching.Request, error) {
		return q, fmt.Errorf("%w: "+format, append([]any{ErrRequest}, args...)...)
	}
	for _, c := range r.Prompt.Chunks {
		if c.Type != "encoded_text" && c.Type != "" {
			return q, fmt.Errorf("%w: chunks of type %.40q", ErrUnsupported, c.Type)
		}
		q.Prompt = append(q.Prompt, c.Tokens...)
	}
	vocab := s.options.Model.Config.VocabSize
	last := of(r.LastN, 1)
	switch {
	case len(r.Targets) > 0 && string(r.Targets) != "null":
		return q, fmt.Errorf("%w: target_prompt_logprobs; topk_prompt_logprobs has the most likely tokens", ErrUnsupported)
	case r.AltK != 0:
		return q, fmt.Errorf("%w: prompt_alt_tokens_k", ErrUnsupported)
	case r.Stable:
		return q, fmt.Errorf("%w: record_stability_info", ErrUnsupported)
	case r.TopPrompt < 0 || r.TopPrompt > vocab || r.TopPrompt*len(q.Prompt) > mostCells:
		return wrong("topk_prompt_logprobs: found %d for %d tokens, expected at most %d together", r.TopPrompt, len(q.Prompt), mostCells)
	case r.TopSample < 0 || r.TopSample > vocab || r.TopSample*s.options.MaxLength > mostCells:
		return wrong("topk_sample_logprobs: found %d, expected at most %d", r.TopSample, mostCells/s.options.MaxLength)
	case r.LastN != nil && !r.Logprobs && r.TopPrompt == 0:
		return wrong("prompt_logprobs_last_n without prompt_logprobs")
	case last < 1 || r.LastN != nil && last >= len(q.Prompt):
		return wrong("prompt_logprobs_last_n: found %d, expected 1 to %d", last, len(q.Prompt)-1)
	}
	q.PromptLogprobs = r.Logprobs || r.TopPrompt > 0
	o, err := r.Params.options()
	if err != nil {
		return q, err
	}
	if o.EOS == nil {
		o.EOS = s.tokenizer.StopTokens(s.options.Model.Config.EOS)
	}
	o.Logprobs, o.TopLogprobs = true, max(r.TopPrompt, r.TopSample)
	if o.Sampler.Seed = drawnSeed(id); r.Params.Seed != nil {
		o.Sampler.Seed = uint64(*r.Params.Seed)
	}
	for i := range n {
		x := o
		x.Sampler.Sequence = uint64(i)
		if len(x.Stop) > 0 {
			x.Decoder = s.tokenizer.NewStream(false)
		}
		q.Answers = append(q.Answers, x)
	}
	return q, nil
}

// drawnSeed returns the seed of a request without one, derived from its id.
func drawnSeed(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.LittleEndian.Uint64(sum[:])
}

// options returns the generation options of the answers, without their seeds.
func (p *params) options() (o generate.GenerateOptions, err error) {
	if p.MaxTokens != nil {
		if o.MaxNewTokens = *p.MaxTokens; *p.MaxTokens < 1 {
			return o, fmt.Errorf("%w: max_tokens: found %d, expected 1 or more", ErrRequest, *p.MaxTokens)
		}
	}
	o.Sampler.Temperature = of(p.Temperature, 1)
	o.Sampler.TopK = max(0, of(p.TopK, -1))
	if o.Sampler.TopP = of(p.TopP, 1); o.Sampler.TopP == 0 {
		o.Sampler.TopP = math.SmallestNonzeroFloat32 // greedy: only the most likely token; 0 means off
	}
	return o, p.stops(&o)
}

// stops reads the stop condition: null means the model's end of sequence; a list of tokens or
// strings replaces it.
func (p *params) stops(o *generate.GenerateOptions) error {
	if len(p.Stop) == 0 || string(p.Stop) == "null" {
		return nil
	}
	o.IgnoreEOS = true
	var one string
	var texts []string
	var ids []int32
	switch {
	case json.Unmarshal(p.Stop, &one) == nil:
		o.Stop = []string{one}
	case json.Unmarshal(p.Stop, &ids) == nil:
		o.EOS, o.IgnoreEOS = ids, len(ids) == 0
	case json.Unmarshal(p.Stop, &texts) == nil:
		o.Stop = texts
	default:
		return fmt.Errorf("%w: stop: found %.60s, expected null, a text, or a list of texts or tokens", ErrRequest, p.Stop)
	}
	return nil
}

// submit runs the request on the engine.
func (s *Server) submit(ctx context.Context, r *sampleRequest, q batching.Request) (*sampled, error) {
	out := &sampled{sequences: make([]sequence, len(q.Answers))}
	if r.TopSample > 0 {
		for i := range out.sequences {
			out.sequences[i].top = &top{k: r.TopSample}
		}
	}
	open := len(q.Answers)
	for t, err := range s.options.Engine.Submit(ctx, q) {
		if err != nil {
			return nil, err
		}
		if len(t.Prompt) > 0 {
			out.describe(r, t.Prompt)
		}
		x := &out.sequences[t.Answer]
		x.tokens = append(x.tokens, t.ID)
		x.logprobs = append(x.logprobs, t.Logprobs.Logprob)
		if x.top != nil {
			x.top.add(t.Logprobs.Top)
		}
		switch t.Finish {
		case "":
			continue
		case generate.FinishLength:
			x.stop = stoppedByLength
		case generate.FinishEOS, generate.FinishStop:
			x.stop = stoppedByToken
		default:
			return nil, fmt.Errorf("the engine has ended an answer: %s", t.Finish)
		}
		if t.Answer == 0 {
			out.cached = t.Times.Cached
		}
		open--
	}
	if open > 0 {
		return nil, cmp.Or(ctx.Err(), errors.New("the engine has ended an answer early"))
	}
	return out, nil
}

// describe sets the requested log-probabilities of the prompt's tokens.
func (o *sampled) describe(r *sampleRequest, prompt []generate.Logprobs) {
	from := 1 // the first token has no log-probability
	if r.LastN != nil {
		from = len(prompt) - *r.LastN
	}
	if r.Logprobs {
		o.prompt = make([]float32, len(prompt))
	}
	if r.TopPrompt > 0 {
		o.topPrompt = &top{k: r.TopPrompt}
	}
	for i, p := range prompt {
		known := i >= from
		if r.Logprobs {
			if o.prompt[i] = float32(math.NaN()); known {
				o.prompt[i] = p.Logprob
			}
		}
		if o.topPrompt != nil {
			if known {
				o.topPrompt.add(p.Top)
			} else {
				o.topPrompt.add(nil)
			}
		}
	}
}

// add appends a position.
func (t *top) add(likely []generate.Logprob) {
	for i := range t.k {
		id, logprob := int32(0), float32(noLogprob)
		if i < len(likely) {
			id, logprob = likely[i].ID, likely[i].Logprob
		}
		t.tokens, t.logprobs = append(t.tokens, id), append(t.logprobs, logprob)
	}
}
