package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/train/config"
)

// NewJobsRank opens the part of one rank in the jobs that the ranks of a World share. With at
// least as many jobs as ranks, each rank trains whole jobs, the longest first, and nothing is
// exchanged; otherwise the ranks of a group share the steps of a job. Every job leaves the files
// of its run alone. Rank 0 reports; the others write the folders of their jobs, which must be on
// storage that all hosts share. A World of one rank, or nil, is a process alone.
func NewJobsRank(ctx context.Context, w dist.World, c *config.Config, observe func(name string) Observer) (*Jobs, error) {
	if w == nil || w.Size() == 1 {
		return NewJobs(ctx, c, observe)
	}
	g, err := ranks.New(ctx, w, "train", timeoutOf(c))
	if err != nil {
		return nil, err
	}
	own, note := withThreads(c, w)
	if note != "" {
		observe("").note("note     %s", note)
	}
	index, err := deviceOf(w, c)
	if err = g.Agree(ctx, nil, err); err != nil {
		return nil, err
	}
	return openJobsRank(ctx, g, own, index, observe)
}

// newJobsOnDevices opens jobs whose ranks are devices of this process. It returns the part of
// rank 0, which owns the others.
func newJobsOnDevices(ctx context.Context, c *config.Config, indices []int, observe func(name string) Observer) (*Jobs, error) {
	all, errs := make([]*Jobs, len(indices)), make([]error, len(indices))
	each(local.New(len(indices)), func(rank int, w dist.World) {
		own, shown := *c, observe
		if rank > 0 {
			shown = func(string) Observer { return Observer{} }
		}
		g, err := ranks.New(ctx, w, "train", timeoutOf(c))
		if err == nil {
			all[rank], err = openJobsRank(ctx, g, &own, indices[rank], shown)
		}
		errs[rank] = err
	})
	if err := firstOf(errs); err != nil {
		for _, j := range all {
			if j != nil {
				j.Close()
			}
		}
		return nil, err
	}
	all[0].others = all[1:]
	return all[0], nil
}

// openJobsRank opens the jobs of a rank of a group.
func openJobsRank(ctx context.Context, g *ranks.Group, c *config.Config, index int, observe func(name string) Observer) (*Jobs, error) {
	jobs, err := jobsOf(c, observe)
	if err == nil && len(jobs) < g.Size() {
		err = c.Validate()
	}
	if err = g.Agree(ctx, nil, err); err != nil {
		return nil, err
	}
	if err := sharesFolder(ctx, g, c.OutputDir); err != nil {
		return nil, err
	}
	j := &Jobs{group: g, shared: jobs}
	if len(jobs) < g.Size() {
		err = j.openGroup(ctx, index, observe)
	} else {
		err = j.openOwn(ctx, index, observe)
	}
	if err = g.Agree(ctx, nil, err); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// sharesFolder fails if ranks do not see what rank 0 writes into dir.
func sharesFolder(ctx context.Context, g *ranks.Group, dir string) error {
	var name string
	raw, err := g.Share(ctx, func() ([]byte, error) {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, fmt.Errorf("train: output_dir: %w", err)
		}
		f, err := os.CreateTemp(dir, ".ranks-*")
		if err != nil {
			return nil, fmt.Errorf("train: output_dir: %w", err)
		}
		name = f.Name()
		return []byte(filepath.Base(name)), f.Close()
	})
	if name != "" {
		defer os.Remove(name)
	}
	if err == nil {
		if _, missing := os.Stat(filepath.Join(dir, string(raw))); missing != nil {
			err = fmt.Errorf("train: output_dir %s: %w: not the folder that %s writes to, expected one on storage that all hosts share", dir, ErrOption, g.Name(0))
		}
	}
	return g.Agree(ctx, nil, err)
}

// openGroup opens the job that the group of this rank shares.
func (j *Jobs) openGroup(ctx context.Context, index int, observe func(name string) Observer) error {
	number := j.group.Rank() * len(j.shared) / j.group.Size()
	var part dist.World
	if err := j.group.Exchange(ctx, nil, func(ctx context.Context) (err error) {
		part, err = j.group.World.Split(ctx, number)
		return err
	}); err != nil {
		return err
	}
	own := j.shared[number]
	o := Observer{}
	if part.Rank() == 0 {
		o = observe(own.Name)
	}
	r := &Run{Setup: Setup{cfg: own.Config, observer: o, index: index}}
	var err error
	if r.group, err = ranks.New(ctx, part, "train", timeoutOf(own.Config)); err != nil {
		return inJob(own.Name, err)
	}
	if j.single, err = r.open(ctx, part.Rank() == 0); err != nil {
		return inJob(own.Name, err)
	}
	j.number, j.memory = number, j.single.Memory()
	return nil
}

// openOwn opens the jobs that this rank trains. The ranks share the work of reading the data of
// all jobs, for their numbers of tokens.
func (j *Jobs) openOwn(ctx context.Context, index int, observe func(name string) Observer) error {
	g := j.group
	tokens := make([]float64, len(j.shared))
	err := g.Do(ctx, func(ctx context.Context) error {
		err := j.open(ctx, j.shared[0].Config, index, observe(""))
		for i := g.Rank(); i < len(j.shared) && err == nil; i += g.Size() {
			tokens[i], err = j.tokens(ctx, j.shared[i])
		}
		return err
	})
	if err != nil {
		return err
	}
	all, err := g.Round(ctx, nil, tokens, nil)
	if err != nil {
		return err
	}
	for _, x := range all {
		for i, n := range x {
			tokens[i] = max(tokens[i], n)
		}
	}
	var own []config.Job
	names := make([][]string, g.Size())
	for i, rank := range assign(tokens, g.Size()) {
		names[rank] = append(names[rank], j.shared[i].Name)
		if rank == g.Rank() {
			own = append(own, j.shared[i])
		}
	}
	for rank, jobs := range names {
		observe("").note("jobs     %s: %s", g.Name(rank), strings.Join(jobs, ", "))
	}
	return g.Do(ctx, func(ctx context.Context) error {
		return j.openAll(ctx, own, observe, func(config.Job) bool { return true })
	})
}

// tokens returns the number of tokens that a job trains on.
func (j *Jobs) tokens(ctx context.Context, own config.Job) (n float64, err error) {
	r := j.base.run(own.Config, Observer{})
	if err := r.openTask(ctx); err != nil {
		return 0, inJob(own.Name, err)
	}
	steps := own.Config.TotalSteps(r.train.StepsPerEpoch())
	counted := min(steps, r.train.StepsPerEpoch())
	for step := range counted {
		n += float64(r.train.Tokens(step))
	}
	return n * float64(steps) / float64(counted), nil
}

// assign returns the rank of each job. It assigns the longest first, each to the rank with the
// fewest tokens so far.
func assign(tokens []float64, ranks int) []int {
	order := make([]int, len(tokens))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tokens[b], tokens[a]) })
	to, load, count := make([]int, len(tokens)), make([]float64, ranks), make([]int, ranks)
	for _, i := range order {
		least := 0
		for r := range ranks {
			if load[r] < load[least] || load[r] == load[least] && count[r] < count[least] {
				least = r
			}
		}
		to[i], load[least], count[least] = least, load[least]+tokens[i], count[least]+1
	}
	return to
}

// trainRank trains the jobs of a rank, and returns the outcomes of all jobs.
func (j *Jobs) trainRank(ctx context.Context) ([]Outcome, error) {
	g := j.group
	var outcomes []Outcome
	if j.single != nil { // its group exchanges with each step
		o := Outcome{Name: j.shared[j.number].Name}
		if o.Summary, o.Err = j.single.Train(ctx); j.single.group.Leads() {
			outcomes = append(outcomes, o)
		}
		if errors.Is(o.Err, dist.ErrLost) {
			return nil, inJob(o.Name, o.Err)
		}
	} else if err := g.Do(ctx, func(ctx context.Context) error {
		outcomes = j.trainOwn(ctx)
		return nil
	}); err != nil && !errors.Is(err, ErrInterrupted) {
		return outcomes, err
	}
	return gatherOutcomes(ctx, g, j.shared, outcomes)
}

// sentOutcome is an Outcome for other ranks.
type sentOutcome struct {
	Name    string        `json:"name"`
	Summary *Summary      `json:"summary,omitempty"`
	Error   string        `json:"error,omitempty"`
	Kind    ranks.Outcome `json:"kind"`
}

// gatherOutcomes returns the outcomes of all jobs on every rank, in the order of the configuration. It
// waits as long as jobs are trained.
func gatherOutcomes(ctx context.Context, g *ranks.Group, jobs []config.Job, own []Outcome) ([]Outcome, error) {
	var sent []sentOutcome
	for _, o := range own {
		s := sentOutcome{Name: o.Name, Summary: o.Summary, Kind: ranks.OutcomeOf(o.Err)}
		if o.Err != nil {
			s.Error = o.Err.Error()
		}
		sent = append(sent, s)
	}
	raw, err := json.Marshal(sent)
	if err != nil {
		return own, err
	}
	patient := *g
	patient.Timeout = 100 * 365 * 24 * time.Hour
	var all [][]byte
	if err := patient.Exchange(ctx, nil, func(ctx context.Context) (err error) {
		all, err = dist.Gather(ctx, g.World, raw)
		return err
	}); err != nil {
		return own, err
	}
	byName := map[string]Outcome{}
	for rank, raw := range all {
		var sent []sentOutcome
		if err := json.Unmarshal(raw, &sent); err != nil {
			return own, err
		}
		for _, s := range sent {
			o := Outcome{Name: s.Name, Summary: s.Summary}
			switch s.Kind {
			case ranks.Failed:
				o.Err = fmt.Errorf("%s: %s", g.Name(rank), s.Error)
			case ranks.Stopped:
				o.Err = &stoppedElsewhere{s.Error}
			}
			byName[s.Name] = o
		}
	}
	for _, o := range own {
		byName[o.Name] = o // whose error has its type
	}
	var out []Outcome
	for _, job := range jobs {
		out = append(out, byName[job.Name])
	}
	return out, nil
}

// stoppedElsewhere is the error of a job that was interrupted on another rank.
type stoppedElsewhere struct{ text string }

func (s *stoppedElsewhere) Error() string { return s.text }
func (s *stoppedElsewhere) Unwrap() error { return ErrInterrupted }
