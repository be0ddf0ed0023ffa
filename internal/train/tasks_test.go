package train_test

import _ "github.com/lorafuse/lorafuse/internal/train/task" // what the runs of these tests learn
