// Package task registers the training tasks: programs that train import it.
package task

import (
	_ "github.com/lorafuse/lorafuse/internal/train/task/flowmatching" // diffusion
	_ "github.com/lorafuse/lorafuse/internal/train/task/text"         // language, embedding, classification, preference
)
