package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// jobsReport is the output of `train --json` for a configuration with jobs.
type jobsReport struct {
	Jobs   []train.Outcome `json:"jobs"`
	Memory train.Memory    `json:"memory"` // of all of them
}

// runJobs runs the jobs of one configuration and prints the results.
func (a *app) runJobs(ctx context.Context, c *config.Config, file string, f *trainFlags) error {
	if f.dryRun {
		return a.dryRunJobs(ctx, c, f.json)
	}
	each, err := c.JobConfigs()
	if err != nil {
		return err
	}
	made := make([]string, len(each))
	for i, job := range each {
		made[i] = firstMissing(job.OutputDir)
	}
	if !a.leads() {
		return a.followJobs(ctx, c)
	}
	var l *onlooker
	if err := train.Ready(ctx, a.world, func() (err error) {
		l, err = a.lookOn(c, f)
		return err
	}); err != nil {
		return err
	}
	defer l.close()
	j, err := train.NewJobsRank(ctx, a.world, c, l.observer)
	if err != nil {
		for i, job := range each {
			removeEmpty(job.OutputDir, made[i])
		}
		return err
	}
	defer j.Close()
	l.on(j.Device())
	all, err := j.Train(ctx)
	l.finish()
	if f.json {
		if err := a.out.json(jobsReport{all, j.Memory()}); err != nil {
			return err
		}
	} else {
		for i, x := range all {
			if x.Err == nil {
				a.out.printf("job      %s\n", x.Name)
				a.summarize(each[i].Config, x.Summary)
			}
		}
	}
	if errors.Is(err, train.ErrInterrupted) {
		return &interrupted{fmt.Errorf("%w: %s", err, a.again(file, f, true))}
	}
	if err != nil {
		return &failure{err}
	}
	return nil
}

// ofJob returns the prefix of messages about a job; it is empty for messages about all jobs.
func ofJob(name string) string {
	if name == "" {
		return ""
	}
	return name + ": "
}

// dryRunJobs does everything but train.
func (a *app) dryRunJobs(ctx context.Context, c *config.Config, asJSON bool) error {
	tmp, err := os.MkdirTemp("", "lorafuse-dry-run-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var p dryRunReport
	p.Memory, err = train.DryRunJobs(ctx, c, tmp, func(name string) train.Observer {
		return train.Observer{Note: func(text string) { p.Notes = append(p.Notes, ofJob(name)+text) }, Load: a.loading()}
	})
	if err != nil {
		return err
	}
	return a.planned(p, asJSON)
}
