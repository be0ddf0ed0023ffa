package tuning

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/lora"
)

// The files of a job are kept in its folder, so that it is independent of later changes to the
// uploaded files and the adapter.
const (
	trainingData   = "train.jsonl"
	validationData = "valid.jsonl"
	initialAdapter = "init"
	outputDir      = "output"
)

// Create adds a job of a client. It is validated and then waits for its turn. Create fails with
// ErrInvalid, also for files that the client does not see, and like [lora.Registry.Acquire] if the
// model is unknown. The caller must check that the client may use the model.
func (s *Service) Create(ctx context.Context, r Request, who keys.Client) (_ Job, err error) {
	if r.Method == "" {
		r.Method = Supervised
	}
	if err := r.check(); err != nil {
		return Job{}, err
	}
	if r.Seed == nil {
		r.Seed = new(uint64(rand.Uint32() >> 1))
	}
	j := &Job{ID: newID(jobPrefix), Owner: who.Name, Created: time.Now().Unix(), Status: Validating, Request: r, Settled: r.Hyperparameters, Continues: r.Model != s.options.Name}
	var initial string
	if j.Continues {
		lease, err := s.registry.Acquire(ctx, r.Model)
		if err != nil {
			return Job{}, err
		}
		defer lease.Release()
		if initial, err = s.folderOf(lease.Version().Digest()); err != nil {
			return Job{}, err
		}
	}
	c, err := s.config(j)
	if err != nil {
		return Job{}, err
	}
	if !j.Continues {
		p, err := lora.NewPlacement(c.Adapter.LoRA(), lora.ModelOf(s.options.Model.Config.ModelType, s.options.Model.Modules()))
		if err == nil {
			err = p.CheckUsed()
		}
		if err != nil {
			return Job{}, invalid("lora", "%s", strings.TrimPrefix(err.Error(), "lora: "))
		}
	}
	for _, f := range []struct{ param, id string }{{"training_file", r.TrainingFile}, {"validation_file", r.ValidationFile}} {
		if err := s.usable(who, f.param, f.id); err != nil {
			return Job{}, err
		}
	}
	err = fsatomic.ReplaceDir(s.path(jobsDir, j.ID), func(dir string) error {
		err := hold(s.path(filesDir, r.TrainingFile), filepath.Join(dir, trainingData))
		if err == nil && r.ValidationFile != "" {
			err = hold(s.path(filesDir, r.ValidationFile), filepath.Join(dir, validationData))
		}
		if err == nil && j.Continues {
			err = copyAdapter(initial, filepath.Join(dir, initialAdapter))
		}
		return err
	})
	if err != nil {
		return Job{}, written(err)
	}
	taken := s.taken()
	s.mu.Lock()
	defer s.mu.Unlock()
	j.Name = s.nameFor(j, taken)
	err = s.update(func(t *store.Tx) (err error) {
		if j.Order, err = t.Order(); err != nil {
			return err
		}
		if err := s.tell(t, j.ID, message(Info, "Created fine-tuning job: %s", j.ID), message(Info, "Validating training file: %s", files(r))); err != nil {
			return err
		}
		return s.jobs.Put(t, *j)
	})
	if err != nil {
		s.tidy(j.ID)
		return Job{}, err
	}
	s.countHeld(j)
	s.moved.Broadcast()
	return *j, nil
}

func files(r Request) string {
	if r.ValidationFile == "" {
		return r.TrainingFile
	}
	return r.TrainingFile + " and validation file: " + r.ValidationFile
}

// usable returns an error unless a file exists that a job can use.
func (s *Service) usable(who keys.Client, param, id string) error {
	if id == "" {
		return nil
	}
	f, err := s.File(who, id)
	if err != nil {
		return &Error{Kind: ErrInvalid, Param: param, Code: "invalid_file", Message: fmt.Sprintf("%s: there is no file %.200q", param, id)}
	}
	if f.Purpose != FineTune {
		return &Error{Kind: ErrInvalid, Param: param, Code: "invalid_file", Message: fmt.Sprintf("%s: the purpose of %s is %s, expected %s", param, id, f.Purpose, FineTune)}
	}
	return nil
}

// folderOf returns the folder of a loaded version.
func (s *Service) folderOf(d lora.Digest) (string, error) {
	for _, info := range s.registry.List() {
		for _, v := range info.Versions {
			if v.Digest == d {
				return v.Dir, nil
			}
		}
	}
	return "", &Error{Kind: ErrInvalid, Param: "model", Message: "model: the adapter was unloaded just now"}
}

// hold links a file under a second name, so that it survives removal of the first.
func hold(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	in, err := os.Open(from) // on another file system, or one without links
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// copyAdapter copies the files of an adapter, without other files in the folder.
func copyAdapter(from, to string) error {
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	for _, name := range []string{lora.ConfigFile, lora.WeightsFile} {
		raw, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), raw, 0o666)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
