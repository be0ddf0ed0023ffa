// Command lorafuse fine-tunes Hugging Face models with LoRA and runs them.
package main

import (
	"os"

	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/cmd/lorafuse/cli"
)

func main() { os.Exit(cli.Main()) }
