"""The control stream of a hand-off (`TransferService.Pull`): what is read when, at both of its ends."""
