// Package task brings in the training tasks.
package task

import (
	_ "github.com/lorafuse/lorafuse/internal/train/task/flowmatching" // diffusion
	_ "github.com/lorafuse/lorafuse/internal/train/task/text"         // language, embedding, classification, preference
)
