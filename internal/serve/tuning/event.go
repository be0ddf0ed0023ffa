package tuning

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// Level is the severity of an event.
type Level string

// The levels.
const (
	Info  Level = "info"
	Warn  Level = "warn"
	Fault Level = "error"
)

// Event is an event of a job.
type Event struct {
	Number  uint64   `json:"number"` // within the job, from 1
	Time    int64    `json:"time"`   // Unix, in seconds
	Level   Level    `json:"level"`
	Message string   `json:"message"`
	Metrics *Metrics `json:"metrics,omitempty"` // if the event is a step
}

// Metrics holds the metrics of a step. Values that are not finite are nil.
type Metrics struct {
	Step            int      `json:"step"`
	Steps           int      `json:"total_steps"`
	Loss            *float64 `json:"train_loss"`
	Accuracy        *float64 `json:"train_accuracy,omitempty"` // DPO: fraction of rows whose chosen answer is preferred
	ValidLoss       *float64 `json:"valid_loss,omitempty"`
	ValidAccuracy   *float64 `json:"valid_accuracy,omitempty"` // likewise; else fraction of right tokens
	LearningRate    *float64 `json:"learning_rate"`
	GradNorm        *float64 `json:"grad_norm"`
	TokensPerSecond *float64 `json:"tokens_per_second"`
}

func message(level Level, format string, args ...any) Event {
	return Event{Time: time.Now().Unix(), Level: level, Message: fmt.Sprintf(format, args...)}
}

// event returns the event of a step.
func (m *Metrics) event() Event {
	e := message(Info, "Step %d/%d: training loss=%s", m.Step, m.Steps, short(m.Loss))
	if m.ValidLoss != nil {
		e.Message += ", validation loss=" + short(m.ValidLoss)
	}
	e.Metrics = m
	return e
}

func short(x *float64) string {
	if x == nil {
		return "not finite"
	}
	return strconv.FormatFloat(*x, 'f', 4, 64)
}

// finite returns a pointer to x, or nil if JSON cannot represent it.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Events returns at most limit events of a job that the client sees, latest first, and whether more
// exist. The page starts after the event with number after, or with the latest if after is 0. It
// fails with ErrNotFound.
func (s *Service) Events(who keys.Client, id string, after uint64, limit int) (page []Event, more bool, err error) {
	if _, err := s.Job(who, id); err != nil {
		return nil, false, err
	}
	s.flush(id)
	err = s.events.Latest(id, after, func(e Event) bool {
		if more = len(page) == limit; !more {
			page = append(page, e)
		}
		return !more
	})
	return page, more, err
}

// tell adds events to a job.
func (s *Service) tell(t *store.Tx, job string, events ...Event) error {
	for _, e := range events {
		err := s.events.Append(t, job, func(n uint64) Event {
			e.Number = n
			return e
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetMetrics removes the metrics of a job from a step on, which will run again.
func (s *Service) forgetMetrics(t *store.Tx, job string, from int) error {
	return s.events.Drop(t, job, func(e Event) (gone, stop bool) {
		return e.Metrics != nil && e.Metrics.Step >= from, e.Metrics != nil && e.Metrics.Step < from
	})
}

// update runs a transaction.
func (s *Service) update(change func(*store.Tx) error) error { return written(s.store.Update(change)) }

const eventPrefix = "ftevent-"

// EventID returns the public ID of an event.
func EventID(job string, number uint64) string {
	return fmt.Sprintf("%s%s-%d", eventPrefix, strings.TrimPrefix(job, jobPrefix), number)
}

// EventNumber returns the number of the event with an ID, or 0 if it is not an event ID of the job.
func EventNumber(job, id string) uint64 {
	digits, ok := strings.CutPrefix(id, eventPrefix+strings.TrimPrefix(job, jobPrefix)+"-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return n
}
