package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
)

// awsTimeout limits the search for credentials. A starting stage waits longer for Kafka, so that it can log the reason.
const awsTimeout = 5 * time.Second

// iam is kgo's AWS_MSK_IAM, with the credentials of the process.
type iam struct{}

func (iam) Name() string { return awsMSKIAM }

func (iam) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, awsTimeout)
	defer cancel()
	auth, err := awsCredentials(ctx)
	if err != nil {
		err = fmt.Errorf("looking for AWS credentials in environment, web identity, profile, container and instance: %w", err)
		awsChain.failed.Store(&failure{err, time.Now()})
		return nil, nil, err
	}
	awsChain.failed.Store(nil)
	auth.UserAgent = "skein"
	session, first, err := auth.AsManagedStreamingIAMMechanism().Authenticate(ctx, host)
	if err != nil {
		return nil, nil, fmt.Errorf("signing for MSK: %w: the broker's name has none, so set AWS_REGION", err)
	}
	return session, first, nil
}

// awsChain has the credentials of the process. All clients share it, because it asks STS or the instance's metadata and keeps the answer
// until it expires. Those that do not expire are read again for each connection: their file may have changed.
var awsChain struct {
	sync.Mutex
	provider sdk.CredentialsProvider // nil before the first use
	failed   atomic.Pointer[failure] // of the last use
}

// awsTrouble returns why there are no credentials, if the last search has failed just now.
func awsTrouble() error { return awsChain.failed.Load().within(2 * awsTimeout) }

func awsCredentials(ctx context.Context) (aws.Auth, error) {
	awsChain.Lock()
	defer awsChain.Unlock()
	if awsChain.provider == nil {
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return aws.Auth{}, err
		}
		awsChain.provider = cfg.Credentials
	}
	c, err := awsChain.provider.Retrieve(ctx)
	if !c.CanExpire {
		awsChain.provider = nil
	}
	return aws.Auth{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken}, err
}
