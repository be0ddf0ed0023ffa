package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// loraConfig is the LoRA configuration of a request.
type loraConfig struct {
	Rank    int    `json:"rank"`
	Seed    *int64 `json:"seed"`
	Unembed *bool  `json:"train_unembed"`
	MLP     *bool  `json:"train_mlp"`
	Attn    *bool  `json:"train_attn"`
}

// of returns *v, or normal if v is nil.
func of[T any](v *T, normal T) T {
	if v == nil {
		return normal
	}
	return *v
}

// alpha is the LoRA alpha of the protocol, which has no field for it.
const alpha = 32

func (s *Server) createModel(c *web.Call) error {
	var r struct {
		Session   string         `json:"session_id"`
		Number    *int64         `json:"model_seq_id"`
		Base      string         `json:"base_model"`
		Lora      *loraConfig    `json:"lora_config"`
		Optimizer optimizer      `json:"optimizer_config"`
		Metadata  map[string]any `json:"user_metadata"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	m, err := s.newModel(c.Who, r.Session, r.Number)
	if err != nil {
		return err
	}
	return s.later(c, m, 0, task{}, func(ctx context.Context) (answer, error) {
		if err := errors.Join(s.isBase(r.Base), r.Optimizer.check()); err != nil {
			return answer{}, err
		}
		if r.Lora == nil {
			return answer{}, fmt.Errorf("%w: a model without lora_config: all of its weights would be trained", ErrUnsupported)
		}
		o := session.Options{
			Rank: r.Lora.Rank, Alpha: alpha, Seed: uint64(of(r.Lora.Seed, 0)), Name: s.options.Name,
			Attention: of(r.Lora.Attn, true), MLP: of(r.Lora.MLP, true), Unembed: of(r.Lora.Unembed, true), Optimizer: r.Optimizer.algorithm(),
		}
		if err := s.begin(ctx, m, o, r.Metadata); err != nil {
			return answer{}, err
		}
		return answered(map[string]any{"type": "create_model", "model_id": m.id})
	})
}

// newModel returns the model with a number in a session that the client sees.
func (s *Server) newModel(who keys.Client, id string, number *int64) (*trainee, error) {
	x, err := s.session(who, id)
	if err != nil {
		return nil, err
	}
	if number == nil || *number < 0 {
		return nil, invalid("model_seq_id: expected a number from 0")
	}
	return s.addModel(x, *number)
}

// begin starts the training of a model. The queue calls it.
func (s *Server) begin(ctx context.Context, m *trainee, o session.Options, metadata map[string]any) error {
	training, err := s.options.Trainer.New(ctx, o)
	if err != nil {
		m.broken = fmt.Errorf("the model was not created: %w", err)
		return err
	}
	r := run{ID: m.id, Owner: m.tenant.owner, BaseModel: s.options.Name, Adapter: o, Metadata: texts(metadata), Created: time.Now().UTC()}
	if err := s.store.add(r); err != nil {
		training.Close()
		m.broken = err
		return err
	}
	m.training = training
	m.info.Lock()
	m.run = &r
	m.info.Unlock()
	return nil
}

// isBase returns an error if name is not the served model.
func (s *Server) isBase(name string) error {
	if name != s.options.Name {
		return fmt.Errorf("%w: base_model %q: this server has %q%s", ErrNotFound, name, s.options.Name, suggest.DidYouMean(name, []string{s.options.Name}))
	}
	return nil
}

// optimizer is the optimizer configuration of a request.
type optimizer struct {
	Type string `json:"type"`
}

func (o optimizer) check() error {
	if o.Type != "" && o.Type != "adam" && trainer.Optimizer(o.Type).Check() != nil {
		return fmt.Errorf("%w: the optimizer %q; supported: adamw and adamw_8bit", ErrUnsupported, o.Type)
	}
	return nil
}

// algorithm returns the algorithm of a new model.
func (o optimizer) algorithm() trainer.Optimizer {
	if o.Type == string(trainer.AdamW8bit) {
		return trainer.AdamW8bit
	}
	return ""
}

// optimizerConfig describes the optimizer of an adapter to clients.
func optimizerConfig(o session.Options) map[string]any {
	return map[string]any{"type": cmp.Or(o.Optimizer, trainer.AdamW)}
}

// trained returns the training session of a model, or the error that prevented it.
func (m *trainee) trained() (Session, error) {
	switch {
	case m.training != nil:
		return m.training, nil
	case m.broken != nil:
		return nil, m.broken
	}
	return nil, fmt.Errorf("%w: the model was not created", ErrRequest)
}

func (s *Server) forwardBackward(c *web.Call) error {
	raw, err := c.Body("application/x-protobuf")
	if err != nil {
		return err
	}
	r, err := parseRequest(raw)
	if err != nil {
		return err
	}
	m, err := s.model(c.Who, r.modelID)
	if err != nil {
		return err
	}
	if r.seqID < 1 {
		return invalid("seq_id: expected a number from 1")
	}
	data, loss, wrong := r.batch()
	var widths []int
	for i := range data {
		widths = append(widths, data[i].K)
	}
	forwardOnly := r.forwardOnly
	return s.later(c, m, r.seqID, task{bytes: int64(len(raw)), together: true}, func(ctx context.Context) (answer, error) {
		training, err := m.trained()
		if err = cmp.Or(err, wrong); err != nil {
			return answer{}, err
		}
		out, err := training.ForwardBackward(ctx, data, loss, forwardOnly)
		if err != nil {
			return answer{}, err
		}
		if gap, ok := out.Metrics[session.GapMetric]; ok && s.options.OnSamplerGap != nil {
			s.options.OnSamplerGap(gap)
		}
		o := trained{logprobs: out.Logprobs, widths: widths, metrics: out.Metrics}
		return answer{proto: o.marshal()}, nil
	})
}

// called holds the fields that all calls of a model share.
type called struct {
	Model string `json:"model_id"`
	Seq   *int64 `json:"seq_id"`
}

// find returns the model and number of a call. The client must see the model.
func (s *Server) find(who keys.Client, r called) (*trainee, int64, error) {
	m, err := s.model(who, r.Model)
	if err != nil {
		return nil, 0, err
	}
	n, err := number(r.Seq)
	return m, n, err
}

func (s *Server) optimStep(c *web.Call) error {
	normal := session.DefaultAdam()
	var r struct {
		called
		Adam *struct {
			LearningRate *float64 `json:"learning_rate"`
			Beta1        *float64 `json:"beta1"`
			Beta2        *float64 `json:"beta2"`
			Eps          *float64 `json:"eps"`
			WeightDecay  *float64 `json:"weight_decay"`
			GradClipNorm *float64 `json:"grad_clip_norm"`
		} `json:"adam_params"`
		Other *optimizer `json:"optimizer_params"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	m, n, err := s.find(c.Who, r.called)
	if err != nil {
		return err
	}
	return s.later(c, m, n, task{}, func(ctx context.Context) (answer, error) {
		training, err := m.trained()
		if err != nil {
			return answer{}, err
		}
		if r.Other != nil {
			if err := (optimizer{cmp.Or(r.Other.Type, "unnamed")}).check(); err != nil {
				return answer{}, err
			}
			if is := r.Other.algorithm(); is != "" && is != m.current().Adapter.Optimizer {
				return answer{}, fmt.Errorf("%w: the optimizer %s of a step: the model was created with %s", ErrRequest, is, trainer.AdamW)
			}
		}
		a := normal
		if p := r.Adam; p != nil {
			a = trainer.Adam{
				LearningRate: of(p.LearningRate, a.LearningRate), Beta1: of(p.Beta1, a.Beta1), Beta2: of(p.Beta2, a.Beta2), Eps: of(p.Eps, a.Eps),
				WeightDecay: of(p.WeightDecay, 0), MaxGradNorm: of(p.GradClipNorm, 0),
			}
		}
		metrics, err := training.OptimStep(ctx, a)
		if err != nil {
			return answer{}, err
		}
		m.dirty = true
		return answered(map[string]any{"type": "optim_step", "metrics": metrics})
	})
}

// saving is a request to save weights.
type saving struct {
	called
	Path       *string           `json:"path"`
	Sampler    *int64            `json:"sampling_session_seq_id"`
	Kind       string            `json:"kind"`
	TTL        *int64            `json:"ttl_seconds"`
	Overwrite  bool              `json:"overwrite"`
	Metadata   map[string]string `json:"user_metadata"`
	Recipients []string          `json:"age_encryption_recipients"`
}

func (s *Server) saveWeights(c *web.Call) error { return s.save(c, trainingKind) }

func (s *Server) saveExternal(c *web.Call) error { return s.save(c, externalKind) }

// save saves the weights of a model under a name.
func (s *Server) save(c *web.Call, k kind) error {
	var r saving
	if err := c.Decode(&r); err != nil {
		return err
	}
	m, n, err := s.find(c.Who, r.called)
	if err != nil {
		return err
	}
	return s.later(c, m, n, task{}, func(ctx context.Context) (answer, error) {
		p, err := s.keep(ctx, m, k, &r, n)
		if err != nil {
			return answer{}, err
		}
		return answered(map[string]any{"type": k.call, "path": p.URI()})
	})
}

// keep writes the weights of a model. The queue calls it.
func (s *Server) keep(ctx context.Context, m *trainee, k kind, r *saving, number int64) (*checkpoint, error) {
	training, err := m.trained()
	if err != nil {
		return nil, err
	}
	if len(r.Recipients) > 0 {
		return nil, fmt.Errorf("%w: age_encryption_recipients", ErrUnsupported)
	}
	p := &checkpoint{
		Run: m.id, Kind: k.folder, Name: of(r.Path, fmt.Sprintf("%06d", number)), Metadata: r.Metadata,
		BaseModel: s.options.Name, Adapter: m.current().Adapter, Optimizer: k == trainingKind,
	}
	if p.Expires, err = expiry(r.TTL); err != nil {
		return nil, err
	}
	overwrite := r.Overwrite || k == externalKind
	if err := s.store.save(p, overwrite, func(dir string) error { return training.Save(ctx, dir, k == trainingKind) }); err != nil {
		return nil, err
	}
	if k == trainingKind {
		m.dirty = false
	}
	return p, nil
}

// expiry returns the time ttl seconds from now, or nil (never) if ttl is nil.
func expiry(ttl *int64) (*time.Time, error) {
	if ttl == nil {
		return nil, nil
	}
	if *ttl < 1 || *ttl > int64(maxTTL/time.Second) {
		return nil, fmt.Errorf("%w: ttl_seconds: found %d, expected 1 to %d", ErrRequest, *ttl, int64(maxTTL/time.Second))
	}
	at := time.Now().UTC().Add(time.Duration(*ttl) * time.Second)
	return &at, nil
}

const maxTTL = 10 * 366 * 24 * time.Hour

func (s *Server) saveForSampler(c *web.Call) error {
	var r saving
	if err := c.Decode(&r); err != nil {
		return err
	}
	m, n, err := s.find(c.Who, r.called)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"", "snapshot", "inflight"}, r.Kind) {
		return invalid("kind: %s", suggest.Expected(r.Kind, []string{"snapshot", "inflight"}))
	}
	if r.Path != nil && r.Sampler != nil {
		return invalid("found path and sampling_session_seq_id, expected one of them")
	}
	return s.later(c, m, n, task{}, func(ctx context.Context) (answer, error) {
		if r.Sampler == nil {
			p, err := s.keep(ctx, m, samplerKind, &r, n)
			if err != nil {
				return answer{}, err
			}
			return answered(map[string]any{"type": samplerKind.call, "path": p.URI()})
		}
		x, err := s.live(ctx, m, *r.Sampler, n, r.Kind == "inflight")
		if err != nil {
			return answer{}, err
		}
		return answered(map[string]any{"type": samplerKind.call, "sampling_session_id": x.id})
	})
}

func (s *Server) loadWeights(c *web.Call) error {
	var r struct {
		called
		Session   string         `json:"session_id"`
		Number    *int64         `json:"model_seq_id"`
		Path      string         `json:"path"`
		Optimizer bool           `json:"optimizer"`
		Base      *string        `json:"base_model"`
		Config    optimizer      `json:"optimizer_config"`
		Metadata  map[string]any `json:"user_metadata"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	var m *trainee
	var n int64
	var err error
	if creates := r.Session != ""; creates {
		m, err = s.newModel(c.Who, r.Session, r.Number)
	} else {
		m, n, err = s.find(c.Who, r.called)
	}
	if err != nil {
		return err
	}
	return s.later(c, m, n, task{}, func(ctx context.Context) (answer, error) {
		p, err := s.store.find(c.Who, r.Path)
		if err == nil {
			err = r.Config.check()
		}
		if err == nil {
			err = s.isBase(p.BaseModel)
		}
		if err == nil && r.Base != nil {
			err = s.isBase(*r.Base)
		}
		if n == 0 && err == nil {
			o := p.Adapter
			o.Optimizer = cmp.Or(r.Config.algorithm(), o.Optimizer)
			err = s.begin(ctx, m, o, r.Metadata)
		}
		if err != nil {
			if n == 0 && m.broken == nil {
				m.broken = fmt.Errorf("the model was not created: %w", err)
			}
			return answer{}, err
		}
		training, err := m.trained()
		if err == nil {
			err = training.Load(ctx, s.store.dir(p), r.Optimizer)
		}
		if err != nil {
			return answer{}, err
		}
		m.dirty = false
		return answered(map[string]any{"type": "load_weights", "path": p.URI(), "model_id": m.id})
	})
}
