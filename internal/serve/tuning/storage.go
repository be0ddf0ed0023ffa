package tuning

import (
	"errors"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// reserve counts bytes of a file before they are written. It fails with ErrNoSpace.
func (s *Service) reserve(n int64) error {
	err := s.space.Reserve(n)
	switch {
	case errors.Is(err, store.ErrLimit):
		return &Error{Kind: ErrNoSpace, Param: "file", Code: "storage_limit_exceeded", Message: fmt.Sprintf("file: the files of all clients have at most %d bytes: delete some that are no longer needed", s.options.MaxFiles)}
	case err != nil:
		return &Error{Kind: ErrNoSpace, Param: "file", Code: "no_space", Message: "file: " + err.Error()}
	}
	return nil
}

// countHeld counts the files of a job that were deleted during its creation.
func (s *Service) countHeld(j *Job) {
	for id, name := range map[string]string{j.Request.TrainingFile: trainingData, j.Request.ValidationFile: validationData} {
		if info, err := os.Stat(s.path(jobsDir, j.ID, name)); err == nil && id != "" {
			s.space.Add(id, info.Size(), 0)
		}
	}
}

// uncount stops counting a file, unless it has a record or an unfinished job holds it. The caller
// holds s.mu.
func (s *Service) uncount(id string) {
	if _, ok := s.files.Get(id); ok {
		return
	}
	for _, j := range s.jobs.All() {
		if !j.Status.Ended() && (j.Request.TrainingFile == id || j.Request.ValidationFile == id) {
			return
		}
	}
	s.space.Drop(id)
}
