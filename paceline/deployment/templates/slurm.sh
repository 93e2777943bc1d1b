#!/bin/bash
{% for line in cluster.summary %}
# {{ line }}
{% endfor %}
#SBATCH --job-name={{ cluster.name }}
#SBATCH --output=%x-%j.log
#SBATCH --time={{ time_limit }}
#SBATCH --nodes={{ cluster.nodes }}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={{ cluster.cpus }}
{% if cluster.gpus %}
#SBATCH --gpus-per-node={{ cluster.gpus }}
{% endif %}
{% if settings.partition %}
#SBATCH --partition={{ settings.partition | shell }}
{% endif %}
{% if settings.account %}
#SBATCH --account={{ settings.account | shell }}
{% endif %}

set -euo pipefail
{% if settings.setup %}
{{ settings.setup }}
{% endif %}

# This script runs on the first node. The port depends on the job, so that jobs that share a node do not meet.
head_ip=$(hostname --ip-address | cut -d' ' -f1)
RAY_ADDRESS=$head_ip:$((20000 + SLURM_JOB_ID % 10000))
export RAY_ADDRESS

# Slurm ends Ray with the job; `ray stop` would end that of the user's other jobs on this node, too.
ray start --head --node-ip-address="$head_ip" --port="${RAY_ADDRESS##*:}" --include-dashboard=false \
    --num-cpus={{ head_cpus }} --num-gpus={{ head_gpus }}
{% if cluster.nodes > 1 %}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
srun --nodes={{ cluster.nodes - 1 }} --ntasks={{ cluster.nodes - 1 }} --exclude="${nodes[0]}" \
    ray start --address="$RAY_ADDRESS" --num-cpus={{ cluster.cpus }} --num-gpus={{ cluster.gpus }} --block &
{% endif %}
python -m paceline.deployment.wait_for_nodes {{ cluster.nodes }}

{{ command | join(" \\\n    ") }}
