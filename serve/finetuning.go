package serve

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// owner is the owned_by of models made by this server.
const owner = "lorafuse"

// jobInfo is a fine-tuning job in OpenAI's form.
type jobInfo struct {
	ID              string            `json:"id"`
	Object          string            `json:"object"`
	Created         int64             `json:"created_at"`
	Finished        *int64            `json:"finished_at"`
	Estimated       *int64            `json:"estimated_finish"`
	Status          tuning.Status     `json:"status"`
	Model           string            `json:"model"`
	Tuned           *string           `json:"fine_tuned_model"`
	Organization    string            `json:"organization_id"`
	TrainingFile    string            `json:"training_file"`
	ValidationFile  *string           `json:"validation_file"`
	Suffix          *string           `json:"user_provided_suffix"`
	Seed            uint64            `json:"seed"`
	Hyperparameters hyperparameters   `json:"hyperparameters"`
	Method          methodInfo        `json:"method"`
	Adapter         json.RawMessage   `json:"lora,omitempty"`
	TrainedTokens   *int64            `json:"trained_tokens"`
	ResultFiles     []string          `json:"result_files"`
	Integrations    []struct{}        `json:"integrations"`
	Metadata        map[string]string `json:"metadata"`
	Error           *jobFailure       `json:"error"`
}

type jobFailure struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// auto is a number, or "auto" while it is undecided.
type auto[T any] struct{ value *T }

// MarshalJSON implements json.Marshaler.
func (a auto[T]) MarshalJSON() ([]byte, error) {
	if a.value == nil {
		return []byte(`"auto"`), nil
	}
	return json.Marshal(*a.value)
}

type hyperparameters struct {
	Epochs         auto[int]      `json:"n_epochs"`
	BatchSize      auto[int]      `json:"batch_size"`
	RateMultiplier auto[float64]  `json:"learning_rate_multiplier"`
	Beta           *auto[float64] `json:"beta,omitempty"`
}

type methodInfo struct {
	Type       tuning.Method  `json:"type"`
	Supervised *methodDetails `json:"supervised,omitempty"`
	DPO        *methodDetails `json:"dpo,omitempty"`
}

type methodDetails struct {
	Hyperparameters hyperparameters `json:"hyperparameters"`
}

func newJobInfo(j tuning.Job) jobInfo {
	r, h := j.Request, j.Settled
	told := hyperparameters{Epochs: auto[int]{h.Epochs}, BatchSize: auto[int]{h.BatchSize}, RateMultiplier: auto[float64]{h.RateMultiplier}}
	i := jobInfo{
		ID: j.ID, Object: "fine_tuning.job", Created: j.Created, Finished: orNone(j.Finished), Estimated: orNone(j.Estimated), Status: j.Status,
		Model: r.Model, Tuned: orNone(j.Tuned), Organization: owner, TrainingFile: r.TrainingFile, ValidationFile: orNone(r.ValidationFile), Suffix: orNone(r.Suffix),
		Seed: *r.Seed, Hyperparameters: told, Method: methodInfo{Type: r.Method}, Adapter: r.Adapter,
		ResultFiles: append([]string{}, j.ResultFiles...), Integrations: []struct{}{}, Metadata: r.Metadata,
	}
	if j.Status == tuning.Succeeded {
		i.TrainedTokens = &j.TrainedTokens
	}
	if j.Error != nil {
		i.Error = &jobFailure{j.Error.Code, j.Error.Message, orNone(j.Error.Param)}
	}
	if r.Method == tuning.DPO {
		told.Beta = &auto[float64]{h.Beta}
		i.Method.DPO = &methodDetails{told}
	} else {
		i.Method.Supervised = &methodDetails{told}
	}
	return i
}

// createJob handles POST /v1/fine_tuning/jobs.
func (s *Server) createJob(c *web.Call) error {
	var body jobRequest
	if err := c.Decode(&body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	c.Note(slog.String("model", r.Model))
	if r.Model != "" && r.Model != s.options.Name {
		lease, err := s.lease(c, r.Model) // to report the same error as other requests
		if err != nil {
			return err
		}
		defer lease.Release()
	}
	j, err := s.options.Tuning.Create(c.Request.Context(), r, c.Who)
	if err != nil {
		return err
	}
	c.Note(slog.String("job", j.ID))
	return c.JSON(newJobInfo(j))
}

// listJobs handles GET /v1/fine_tuning/jobs.
func (s *Server) listJobs(c *web.Call) error {
	limit, err := limit(c, 20, mostListed)
	if err != nil {
		return err
	}
	query := c.Request.URL.Query()
	all := slices.DeleteFunc(s.options.Tuning.Jobs(c.Who), func(j tuning.Job) bool { return !marked(j, query) })
	p, err := page(all, func(j tuning.Job) string { return j.ID }, query.Get("after"), limit, newJobInfo)
	if err != nil {
		return err
	}
	return c.JSON(p)
}

// marked reports whether a job matches the metadata of a query: metadata[key]=value, or
// metadata=null for none.
func marked(j tuning.Job, query url.Values) bool {
	for key, values := range query {
		if key == "metadata" && values[0] == "null" && j.Request.Metadata != nil {
			return false
		}
		name, ok := strings.CutPrefix(key, "metadata[")
		if name, closed := strings.CutSuffix(name, "]"); ok && closed {
			if value, has := j.Request.Metadata[name]; !has || value != values[0] {
				return false
			}
		}
	}
	return true
}

// job returns the handler of a route that reads or changes a job, such as GET
// /v1/fine_tuning/jobs/{id}.
func job(what func(who keys.Client, id string) (tuning.Job, error)) func(*web.Call) error {
	return func(c *web.Call) error {
		j, err := what(c.Who, c.Request.PathValue("id"))
		if err != nil {
			return err
		}
		return c.JSON(newJobInfo(j))
	}
}

// eventInfo is an event of a fine-tuning job in OpenAI's form.
type eventInfo struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created_at"`
	Level   tuning.Level    `json:"level"`
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Data    *tuning.Metrics `json:"data"`
}

// listEvents handles GET /v1/fine_tuning/jobs/{id}/events.
func (s *Server) listEvents(c *web.Call) error {
	limit, err := limit(c, 20, mostListed)
	if err != nil {
		return err
	}
	id := c.Request.PathValue("id")
	var after uint64
	if text := c.Request.URL.Query().Get("after"); text != "" {
		if after = tuning.EventNumber(id, text); after == 0 {
			return web.Invalid("after", "after: the job has no event %.200q", text)
		}
	}
	all, more, err := s.options.Tuning.Events(c.Who, id, after, limit)
	if err != nil {
		return err
	}
	p, err := page(all, func(e tuning.Event) string { return tuning.EventID(id, e.Number) }, "", limit, func(e tuning.Event) eventInfo {
		i := eventInfo{ID: tuning.EventID(id, e.Number), Object: "fine_tuning.job.event", Created: e.Time, Level: e.Level, Message: e.Message, Type: "message", Data: e.Metrics}
		if e.Metrics != nil {
			i.Type = "metrics"
		}
		return i
	})
	if err != nil {
		return err
	}
	p.More = more
	return c.JSON(p)
}

// checkpointInfo is a checkpoint of a fine-tuning job in OpenAI's form.
type checkpointInfo struct {
	ID      string            `json:"id"`
	Object  string            `json:"object"`
	Created int64             `json:"created_at"`
	Model   string            `json:"fine_tuned_model_checkpoint"`
	Job     string            `json:"fine_tuning_job_id"`
	Metrics checkpointMetrics `json:"metrics"`
	Step    int               `json:"step_number"`
}

type checkpointMetrics struct {
	Step      int      `json:"step"`
	Loss      *float64 `json:"train_loss,omitempty"`
	ValidLoss *float64 `json:"valid_loss,omitempty"`
	FullLoss  *float64 `json:"full_valid_loss,omitempty"`
}

// listCheckpoints handles GET /v1/fine_tuning/jobs/{id}/checkpoints.
func (s *Server) listCheckpoints(c *web.Call) error {
	limit, err := limit(c, 10, mostListed)
	if err != nil {
		return err
	}
	j, err := s.options.Tuning.Job(c.Who, c.Request.PathValue("id"))
	if err != nil {
		return err
	}
	latestFirst := slices.Clone(j.Checkpoints)
	slices.Reverse(latestFirst)
	p, err := page(latestFirst, func(x tuning.Checkpoint) string { return x.ID }, c.Request.URL.Query().Get("after"), limit, func(x tuning.Checkpoint) checkpointInfo {
		m := x.Metrics // an evaluation always covers the whole file
		return checkpointInfo{
			ID: x.ID, Object: "fine_tuning.job.checkpoint", Created: x.Created, Model: x.Model, Job: j.ID, Step: m.Step,
			Metrics: checkpointMetrics{Step: m.Step, Loss: m.Loss, ValidLoss: m.ValidLoss, FullLoss: m.ValidLoss},
		}
	})
	if err != nil {
		return err
	}
	return c.JSON(p)
}

// deleteModel handles DELETE /v1/models/{id} for adapters made by the client's jobs.
func (s *Server) deleteModel(c *web.Call) error {
	id := c.Request.PathValue("id")
	if _, ok := s.options.Tuning.Model(id); !ok && id == s.options.Name {
		return &web.Failure{Status: http.StatusForbidden, Message: fmt.Sprintf("the model %.200q was not made by a fine-tuning job, and cannot be deleted", id), Param: "model"}
	}
	if err := s.options.Tuning.DeleteModel(c.Who, id); err != nil {
		return err
	}
	c.Note(slog.String("model", id))
	return c.JSON(deletion{id, "model", true})
}
