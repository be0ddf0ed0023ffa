package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// devicesFlag adds --devices.
func (f *modelFlags) devicesFlag(c *cobra.Command) {
	c.Flags().StringVar(&f.devices, "devices", "", "GPUs that share the work: all, or indices such as 0,2 (default: the first)")
}

// rankRun is the part of a rank in a command. It runs at the same time as those of other ranks,
// and must not change what it shares with them.
type rankRun func(ctx context.Context, a *app, g *ranks.Group) error

// onRanks runs a command on the ranks that share it: those of a launcher, or in this process one
// for each device of --devices. A command alone has no Group.
func (a *app) onRanks(ctx context.Context, f *modelFlags, run rankRun) error {
	if err := a.connect(ctx); err != nil {
		return err
	}
	if a.world == nil {
		indices, err := f.deviceIndices()
		if err != nil {
			return err
		}
		if len(indices) > 1 {
			return a.onDevices(ctx, f, len(indices), run)
		}
	}
	return a.onRank(ctx, f, run)
}

// onRank runs the part of this rank, and returns the error that the ranks agree on.
func (a *app) onRank(ctx context.Context, f *modelFlags, run rankRun) error {
	g, err := ranks.New(ctx, a.world, f.command, time.Duration(config.Default().DistributedTimeout))
	if err != nil {
		return err
	}
	if g != nil {
		g.Status = func(err error) int { return statusOf(ctx, err) }
	}
	if err = run(ctx, a, g); !ranks.IsAgreed(err) {
		own := err
		err = g.Do(context.WithoutCancel(ctx), func(context.Context) error { return own })
	}
	return err
}

// onDevices runs a command on n ranks of this process, whose devices are those of --devices.
func (a *app) onDevices(ctx context.Context, f *modelFlags, n int, run rankRun) error {
	apps, errs := []*app{a}, make([]error, n)
	for rank, w := range local.New(n) {
		if rank > 0 {
			apps = append(apps, &app{in: a.in, out: &output{w: io.Discard}, err: io.Discard})
		}
		apps[rank].world = w
	}
	var all sync.WaitGroup
	for rank, own := range apps {
		all.Go(func() {
			debug.SetPanicOnFault(true)
			defer func() {
				if p := recover(); p != nil {
					errs[rank] = own.panicked(p)
					own.world.Abort(ExitFailure)
				}
				own.close()
			}()
			errs[rank] = own.onRank(ctx, f, run)
		})
	}
	all.Wait()
	return causeOf(errs)
}

// causeOf returns the error of ranks in one process that the others follow from.
func causeOf(errs []error) error {
	i := slices.IndexFunc(errs, func(err error) bool {
		return err != nil && !errors.Is(err, train.ErrElsewhere) && !errors.Is(err, dist.ErrLost)
	})
	return errs[max(i, 0)]
}

// deviceIndices returns the devices of --devices, or the first one.
func (f *modelFlags) deviceIndices() ([]int, error) {
	if f.devices == "" {
		return []int{0}, nil
	}
	n, err := backend.Count(f.backend)
	if err != nil {
		return nil, err
	}
	indices, err := backend.ParseDevices(f.devices, n)
	if err != nil {
		return nil, fmt.Errorf("--devices: %w; lorafuse devices lists them, and a CPU is one", err)
	}
	return indices, nil
}

// ofRank returns the device and the options of a rank of a World.
func (a *app) ofRank(f *modelFlags, indices []int, o backend.Options) (backend.Options, error) {
	if f.devices == "" {
		indices = nil
	}
	var err error
	if o.Index, err = backend.OfRank(f.backend, indices, a.world.LocalRank(), a.world.LocalSize()); err != nil {
		return o, fmt.Errorf("--devices: %w", err)
	}
	if o.Threads == 0 {
		var note string
		if o.Threads, note = dist.Threads(a.world.LocalSize()); note != "" {
			a.note("note     %s", note)
		}
	}
	return o, nil
}

// localFlags lists the flags that ranks may give differently: files, and the machine.
var localFlags = []string{
	"model", "adapter", "transformer", "config", "data", "scores", "input", "output", "prompts", "schema", "chat-template", "control",
	"embedding", "negative-embedding", "backend", "devices", "threads", "pack", "load", "json",
}

// compareRanks returns an error if the ranks differ in what results depend on: the program, the
// device, the flags and values.
func (f *modelFlags) compareRanks(ctx context.Context, g *ranks.Group, dev backend.Device, values map[string]string) error {
	if g == nil {
		return nil
	}
	info := dev.Info()
	all := map[string]string{"build": train.Build(), "backend": info.Backend, "device": info.Detail}
	f.set.Visit(func(flag *pflag.Flag) {
		if !slices.Contains(localFlags, flag.Name) {
			all["--"+flag.Name] = flag.Value.String()
		}
	})
	maps.Copy(all, values)
	return g.Same(ctx, nil, all)
}

// identity returns what results depend on in the model of a session.
func (s *session) identity() (map[string]string, error) {
	weights, err := train.WeightsIdentity(s.model.Model)
	values := map[string]string{"weights": weights}
	if s.model.State != nil {
		values["adapter"] = train.HashOf(s.model.State)
	}
	return values, err
}
