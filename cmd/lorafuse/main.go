// Command lorafuse fine-tunes Hugging Face models with LoRA and runs them.
package main

import (
	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/cmd/lorafuse/cli"
	"github.com/lorafuse/lorafuse/dist"
)

func main() { dist.Exit(cli.Main()) }
