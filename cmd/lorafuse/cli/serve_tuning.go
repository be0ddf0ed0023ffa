package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/safetensors"
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
