package tuning

import (
	"encoding/csv"
	"os"
	"strconv"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/train/events"
)

// columns are the columns of a results file: OpenAI's names and the corresponding keys of
// metrics.jsonl. Missing values are empty.
var columns = []struct{ name, figure string }{
	{"train_loss", events.Loss}, {"train_accuracy", "rewards/accuracies"}, {"valid_loss", events.EvalLoss}, {"valid_accuracy", events.EvalAccuracy},
	{"learning_rate", "learning_rate"}, {"grad_norm", "grad_norm"},
}

// results writes the results file of a job. It does not add a record.
func (s *Service) results(owner, metrics string) (File, error) {
	records, err := events.ReadMetrics(metrics)
	if err != nil {
		return File{}, err
	}
	f := File{ID: newID(filePrefix), Name: "step_metrics.csv", Purpose: Results, Created: time.Now().Unix(), Owner: owner}
	path := s.path(filesDir, f.ID)
	err = fsatomic.ReplaceFile(path, func(name string) error {
		out, err := os.Create(name)
		if err != nil {
			return err
		}
		defer out.Close()
		w := csv.NewWriter(out)
		row := []string{"step"}
		for _, c := range columns {
			row = append(row, c.name)
		}
		for i := 0; err == nil; i++ {
			if err = w.Write(row); err != nil || i == len(records) {
				break
			}
			row = append(row[:0], strconv.FormatInt(records[i].Step, 10))
			for _, c := range columns {
				text := ""
				if x, ok := records[i].Value(c.figure); ok {
					text = strconv.FormatFloat(x, 'g', -1, 64)
				}
				row = append(row, text)
			}
		}
		w.Flush()
		if err == nil {
			err = w.Error()
		}
		if info, statErr := out.Stat(); err == nil && statErr == nil {
			f.Bytes = info.Size()
		}
		return err
	})
	return f, written(err)
}
