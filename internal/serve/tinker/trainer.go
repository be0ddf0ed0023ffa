package tinker

import (
	"context"
	"errors"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// Trainer starts training sessions; *Sessions implements it. A Trainer is used by one goroutine, and
// each session by one at a time.
type Trainer interface {
	New(ctx context.Context, o session.Options) (Session, error)
}

// Session trains one adapter; *session.Session implements it.
type Session interface {
	ForwardBackward(ctx context.Context, data []session.Datum, l session.Loss, forwardOnly bool) (*session.Output, error)
	OptimStep(ctx context.Context, a trainer.Adam) (map[string]float64, error)
	Save(ctx context.Context, dir string, optimizer bool) error
	Snapshot(ctx context.Context) (*lora.State, error)
	Load(ctx context.Context, dir string, optimizer bool) error
	Close()
}

// Sessions implements Trainer with real training sessions.
type Sessions struct{ group *session.Group }

// NewSessions returns a trainer on a host. The caller keeps ownership of the host, and closes it
// after the server. Errors: model.ErrTask.
func NewSessions(h *host.Host) (*Sessions, error) {
	if err := h.Model().CheckTask(model.NextToken); err != nil {
		return nil, err
	}
	return &Sessions{session.NewGroup(h)}, nil
}

// New implements Trainer.
func (t *Sessions) New(ctx context.Context, o session.Options) (Session, error) {
	s, err := t.group.New(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Errors of well-formed requests that cannot be fulfilled.
var (
	// ErrUnsupported is the error for a feature of the protocol that this server does not
	// implement.
	ErrUnsupported = errors.New("not supported")
	// ErrRequest is the error for an invalid request.
	ErrRequest = errors.New("wrong request")
	// ErrNotFound is the error for an unknown name.
	ErrNotFound = errors.New("not found")
)

// userErrors are the errors that are reported to clients, who can act on them.
var userErrors = []error{
	ErrUnsupported, ErrRequest, ErrNotFound, errPast, store.ErrNoSpace, store.ErrNearlyFull,
	session.ErrInput, trainer.ErrNotFinite, trainer.ErrCheckpoint, session.ErrDropped, lora.ErrNotFinite,
	batching.ErrRequest, generate.ErrTooLong, generate.ErrToken, generate.ErrOption, sample.ErrSetting,
}
