package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/serve"
	"github.com/lorafuse/lorafuse/train/config"
)

// tuningFlags holds the flags of training while serving.
type tuningFlags struct {
	trainDir  string
	trainJobs int
	maxFile   string
	maxFiles  string
}

func (f *tuningFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.trainDir, "train-dir", "", "folder for files, fine-tuning jobs and adapters; enables OpenAI's fine-tuning API and Tinker's")
	flags.IntVar(&f.trainJobs, "train-jobs", 1, "maximum concurrent fine-tuning jobs; others are queued")
	flags.StringVar(&f.maxFile, "max-file-size", "", "maximum size of an uploaded file, such as 2GiB (default 512MiB)")
	flags.StringVar(&f.maxFiles, "max-files-size", "", "maximum total size of uploaded files, such as 100GiB (default 16 times --max-file-size)")
}

// fileLimits are the most bytes of a file, and of all files; 0 is the default.
type fileLimits struct{ file, files int64 }

// checkTuning validates all flags that can be checked without the model.
func (f *serveFlags) checkTuning(command string) (l fileLimits, err error) {
	for _, name := range []string{"train-jobs", "train-share", "max-file-size", "max-files-size"} {
		if f.given(name) && f.trainDir == "" {
			return l, usagef(command, "--%s is for --train-dir, which is not given", name)
		}
	}
	if f.trainJobs < 1 {
		return l, fmt.Errorf("--train-jobs: found %d, expected 1 or more", f.trainJobs)
	}
	for _, x := range []struct {
		flag, text string
		bytes      *int64
	}{{"max-file-size", f.maxFile, &l.file}, {"max-files-size", f.maxFiles, &l.files}} {
		if x.text == "" {
			continue
		}
		if *x.bytes, err = safetensors.ParseSize(x.text); err != nil || *x.bytes < 1 {
			return l, fmt.Errorf("--%s: found %q, expected bytes, such as 2GiB", x.flag, x.text)
		}
	}
	return l, nil
}

// openTuning opens the folder of --train-dir, if there is one.
func (f *serveFlags) openTuning(limits fileLimits, s *service, o *serve.Options, log *slog.Logger) (err error) {
	if f.trainDir == "" {
		return nil
	}
	t := tuning.Options{
		Dir: f.trainDir, Name: s.name, Model: s.session.model, Template: f.template, MaxFile: limits.file, MaxFiles: limits.files, Logger: log,
		Data: data.Options{Tokenizer: o.Tokenizer},
		Taken: func(name string) bool {
			if f.adaptersDir == "" {
				return false
			}
			_, err := os.Stat(filepath.Join(f.adaptersDir, filepath.FromSlash(name)))
			return err == nil
		},
	}
	if o.Template != nil {
		t.Data.Template = data.Chat(o.Template)
	}
	if o.Tuning, err = tuning.Open(t); errors.Is(err, tuning.ErrInUse) {
		return &failure{fmt.Errorf("--train-dir: %w", err)}
	} else if err != nil {
		return fmt.Errorf("--train-dir: %w", err)
	}
	s.tuning = o.Tuning
	return nil
}

// find returns the folder of an adapter that a job has trained.
func (s *service) find(name string) (dir string, ok bool) {
	if s.tuning == nil {
		return "", false
	}
	return s.tuning.Find(name)
}

// startTuning starts the service that trains jobs on the served model.
func (f *serveFlags) startTuning(s *service) {
	if s.tuning == nil {
		return
	}
	s.beside = s.engine.Beside()
	s.tuning.Start(s.engine.Adapters(), besideServing{train.NewBase(s.beside, f.model)}, f.trainJobs)
}

// closeTuning stops the service that startTuning started.
func (s *service) closeTuning() {
	if s.tuning != nil {
		s.tuning.Close()
	}
	if s.beside != nil {
		s.beside.Close()
	}
}

// besideServing trains while the engine serves.
type besideServing struct{ *train.Base }

// New implements tuning.Trainer.
func (b besideServing) New(ctx context.Context, c *config.Config, o train.Observer) (tuning.Run, error) {
	r, err := b.Base.New(ctx, c, o)
	if err != nil {
		return nil, err
	}
	return r, nil
}
